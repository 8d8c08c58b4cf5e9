select body from question indexed by question_of_status
where status = :status and (rank, asked_at, id) > (:rank, :asked_at, :after) order by rank, asked_at, id limit :limit;
