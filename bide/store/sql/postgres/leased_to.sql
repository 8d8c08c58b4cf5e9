select id, version, lease_until, last_seq, body from session where runner = $1 order by id;
