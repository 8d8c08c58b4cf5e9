select id, version, lease_until, last_seq, body from session where runner = ? order by id;
