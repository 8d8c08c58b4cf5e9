insert into question (id, session, status, asked_at, body)
select * from unnest($1::text[], $2::text[], $3::text[], $4::double precision[], $5::bytea[])
on conflict (id) do update set
  session = excluded.session, status = excluded.status, asked_at = excluded.asked_at, body = excluded.body;
