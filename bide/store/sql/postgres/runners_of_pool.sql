select body from runner where pool = $1 order by name, id;
