-- As a range of the index: by `lifecycle = word` and `order by id` the planner may walk the key, past every other session.
select s.* from unnest($1::text[]) word, lateral (
  select id, version, lease_until, last_seq, body from session
  where lifecycle >= word and (lifecycle, id) < (word, $2)
  order by lifecycle desc, id desc limit $3) s
order by s.id desc limit $3;
