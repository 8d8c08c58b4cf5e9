-- Releases before 2 read the queue of all pools at once.
drop index session_queued;
