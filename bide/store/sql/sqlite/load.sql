select pool, count(*), 0, min(queued_at) from session indexed by session_waiting where lifecycle = 'queued' group by pool
union all
select pool, 0, count(*), null from session indexed by session_held where runner is not null group by pool;
