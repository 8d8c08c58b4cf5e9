select body from question where id = ?;
