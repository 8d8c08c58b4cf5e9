select body from input where session = $1 order by seq;
