delete from runner where id = ?;
