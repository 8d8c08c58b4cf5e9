select id from session where wake_at <= ? order by wake_at, id limit ?;
