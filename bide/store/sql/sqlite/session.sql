select version, lease_until, last_seq, body, wake_at from session where id = ?;
