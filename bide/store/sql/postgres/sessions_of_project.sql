select s.* from unnest($1::text[]) word, lateral (
  select id, version, lease_until, last_seq, body from session
  where (project, lifecycle) >= ($4, word) and (project, lifecycle, id) < ($4, word, $2)
  order by project desc, lifecycle desc, id desc limit $3) s
order by s.id desc limit $3;
