with due as materialized (
  select id, wake_at from session where wake_at <= $1 order by wake_at, id limit $2 for update skip locked
)
update session s set wake_at = $3 from due where s.id = due.id returning due.wake_at, s.id;
