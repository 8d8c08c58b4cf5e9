insert into session
  (id, version, lifecycle, project, ticket, pool, runtime, runner, queued_at, wake_at, lease_until, last_seq, body)
select * from unnest(
  $1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::double precision[], $10::double precision[], $11::double precision[], $12::bigint[], $13::bytea[])
on conflict (id) do nothing returning id;
