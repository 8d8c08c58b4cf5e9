select body from question where session = $1 order by asked_at, id;
