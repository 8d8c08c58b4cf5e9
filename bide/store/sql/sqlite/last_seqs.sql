select id, last_seq from session where id in (select value from json_each(?));
