update session s set
  version = r.version, lifecycle = r.lifecycle, project = r.project, ticket = r.ticket, pool = r.pool,
  runtime = r.runtime, runner = r.runner, queued_at = r.queued_at, wake_at = r.wake_at, lease_until = r.lease_until,
  last_seq = r.last_seq, body = r.body
from unnest(
  $1::text[], $2::integer[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
  $9::double precision[], $10::double precision[], $11::double precision[], $12::bigint[], $13::bytea[])
  r(id, version, lifecycle, project, ticket, pool, runtime, runner, queued_at, wake_at, lease_until, last_seq, body)
where s.id = r.id;
