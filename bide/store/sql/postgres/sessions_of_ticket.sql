select s.* from unnest($1::text[]) word, lateral (
  select id, version, lease_until, last_seq, body from session
  where (ticket, lifecycle) >= ($5, word) and (ticket, lifecycle, id) < ($5, word, $2) and ticket <> ''
    and ($4 = '' or project = $4)
  order by ticket desc, lifecycle desc, id desc limit $3) s
order by s.id desc limit $3;
