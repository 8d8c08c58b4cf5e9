select body from runner order by name, id;
