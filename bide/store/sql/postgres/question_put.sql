insert into question (id, session, status, rank, asked_at, body)
select * from unnest($1::text[], $2::text[], $3::text[], $4::integer[], $5::double precision[], $6::bytea[])
on conflict (id) do update set
  session = excluded.session, status = excluded.status, rank = excluded.rank, asked_at = excluded.asked_at,
  body = excluded.body;
