select body from question where status = $1 order by asked_at, id;
