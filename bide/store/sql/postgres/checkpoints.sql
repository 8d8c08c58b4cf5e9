select body from checkpoint where session = $1 order by place;
