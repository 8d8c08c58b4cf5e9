select body from question where session = :session and (:status = '' or status = :status) order by asked_at, id;
