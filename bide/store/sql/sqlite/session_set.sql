-- Where nothing changed that the session is found by: no index is touched.
update session set version = ?, lease_until = ?, last_seq = ?, body = ? where id = ?;
