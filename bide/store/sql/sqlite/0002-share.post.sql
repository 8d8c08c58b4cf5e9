-- Releases before 2 read the queue of all pools at once, and the inbox without its order.
drop index session_queued;
drop index question_by_status;
