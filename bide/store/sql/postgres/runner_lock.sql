select body from runner where id = $1 for update;
