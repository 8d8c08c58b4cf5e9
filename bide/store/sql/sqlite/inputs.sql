select body from input where session = ? order by seq;
