insert into event (session, seq, id, epoch, n, time, type, turn, actor, version, body)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
