select body from runner where pool = ? order by name, id;
