select count(*) from session indexed by session_waiting
where lifecycle = 'queued' and pool = ? and (queued_at, id) < (?, ?);
