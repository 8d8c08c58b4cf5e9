select body from checkpoint where session = ? order by place;
