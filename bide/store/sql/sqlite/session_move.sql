update session
set version = ?, lifecycle = ?, project = ?, ticket = ?, runner = ?, lease_until = ?, queued_at = ?, wake_at = ?,
    last_seq = ?, body = ?
where id = ?;
