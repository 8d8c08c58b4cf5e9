select body from question
where (rank, asked_at, id) > ($1, $2, $3) order by rank, asked_at, id limit $4;
