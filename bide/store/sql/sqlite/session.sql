select version, lease_until, last_seq, body from session where id = ?;
