select id, session, seq, epoch, time, type, turn, actor, n, version, body from event
where session = ? and seq > ? order by seq limit ?;
