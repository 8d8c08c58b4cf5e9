-- As a range of its index: by `status = $1` the planner may walk the other one, past every question of other statuses.
select body from question
where status <= $1 and (status, rank, asked_at, id) > ($1, $2, $3, $4)
order by status, rank, asked_at, id limit $5;
