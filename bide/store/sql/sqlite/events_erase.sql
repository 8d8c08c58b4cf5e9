delete from event where session = :session and seq in (select seq from event where session = :session order by seq limit :limit)
returning 1;
