select runner from session where id = ?;
