delete from session where id = :session;
delete from input where session = :session;
delete from question where session = :session;
delete from checkpoint where session = :session;
