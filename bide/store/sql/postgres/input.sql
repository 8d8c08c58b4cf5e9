select body from input where session = $1 and id = $2;
