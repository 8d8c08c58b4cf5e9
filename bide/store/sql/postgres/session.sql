select id, version, lease_until, last_seq, body from session where id = $1;
