select body from question where id = $1;
