select body from input where session = ? and id = ?;
