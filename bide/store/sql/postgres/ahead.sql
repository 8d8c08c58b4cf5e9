select count(*) from session where lifecycle = 'queued' and pool = $1 and (queued_at, id) < ($2, $3);
