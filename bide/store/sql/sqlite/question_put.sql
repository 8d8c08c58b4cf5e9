insert into question (id, session, status, asked_at, body) values (?, ?, ?, ?, ?)
on conflict (id) do update set
  session = excluded.session, status = excluded.status, asked_at = excluded.asked_at, body = excluded.body;
