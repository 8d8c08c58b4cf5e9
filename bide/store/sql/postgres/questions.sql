select body from question order by asked_at, id;
