select body from runner where id = ?;
