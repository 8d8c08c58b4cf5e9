delete from runner where id = $1;
