select s.id, s.version, s.lease_until, s.last_seq, s.body from unnest($2::text[]) wanted, lateral (
  select id, version, lease_until, last_seq, body, queued_at from session
  where lifecycle = 'queued' and pool = $1 and runtime = wanted and (queued_at, id) > ($3, $4)
  order by queued_at, id limit $5) s
order by s.queued_at, s.id limit $5;
