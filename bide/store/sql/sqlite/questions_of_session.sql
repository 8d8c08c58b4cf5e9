select body from question where session = ? order by asked_at, id;
