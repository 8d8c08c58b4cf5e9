insert into input (session, id, seq, body) values (?, ?, ?, ?)
on conflict (session, id) do update set seq = excluded.seq, body = excluded.body;
