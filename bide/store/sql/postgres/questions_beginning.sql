-- The status is asked for in a way that no index answers: by the one on it, all of that status would be read and sorted.
select body from question where id >= $1 and id < $2 and $3 = any(array['', status]) order by id limit $4;
