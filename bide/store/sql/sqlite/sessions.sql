select id, version, lease_until, last_seq, body from session
where lifecycle = :lifecycle and id < :before
order by id desc limit :limit;
