select body from question where session = $1 and ($2 = '' or status = $2) order by asked_at, id;
