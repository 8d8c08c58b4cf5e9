select id, version, lease_until, last_seq, body from session
where project = :project and lifecycle = :lifecycle and id < :before
order by id desc limit :limit;
