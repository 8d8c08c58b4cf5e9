insert into session (version, lifecycle, project, ticket, runner, lease_until, queued_at, wake_at, last_seq, body, id)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);
