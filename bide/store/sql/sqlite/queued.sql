-- Named, because the planner prefers any index on an equal lifecycle, and would sort.
select id, version, lease_until, last_seq, body from session indexed by session_waiting
where lifecycle = 'queued' and pool = :pool and (queued_at, id) > (:at, :after)
  and runtime in (select value from json_each(:runtimes))
order by queued_at, id limit :limit;
