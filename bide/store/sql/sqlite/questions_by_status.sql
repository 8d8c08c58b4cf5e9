select body from question where status = ? order by asked_at, id;
