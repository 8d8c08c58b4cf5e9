-- Named, because the planner prefers any index on an equal lifecycle, and would sort.
select id, version, lease_until, last_seq, body from session indexed by session_queued
where lifecycle = 'queued' order by queued_at, id;
