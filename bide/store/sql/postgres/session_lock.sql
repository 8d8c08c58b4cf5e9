-- In id order, so that two servers never wait for each other. The last row is the time: read once all are locked.
with locked as materialized (
  select id, version, lease_until, last_seq, body from session where id = any($1::text[]) order by id for update
)
select id, version, lease_until, last_seq, body, null::double precision as now from locked
union all
select null, null, null, null, null, extract(epoch from clock_timestamp())::double precision;
