select body from question indexed by question_in_order
where (rank, asked_at, id) > (:rank, :asked_at, :after) order by rank, asked_at, id limit :limit;
