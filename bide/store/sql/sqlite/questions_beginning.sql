select body from question
where id >= :first and id < :beyond and (:status = '' or status = :status) order by id limit :limit;
