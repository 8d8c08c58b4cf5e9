update session
set version = ?, lifecycle = ?, project = ?, ticket = ?, pool = ?, runtime = ?, runner = ?, queued_at = ?, wake_at = ?,
    lease_until = ?, last_seq = ?, body = ?
where id = ?;
