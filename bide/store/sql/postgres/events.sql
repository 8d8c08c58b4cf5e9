select id, session, seq, epoch, time, type, turn, actor, n, version, body from event
where session = $1 and seq > $2 order by seq limit $3;
