select id, version, lease_until, last_seq, body from session
where ticket = :ticket and ticket <> '' and lifecycle = :lifecycle and id < :before
  and (:project = '' or project = :project)
order by id desc limit :limit;
