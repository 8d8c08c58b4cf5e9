select id, last_seq from session where id = any($1::text[]);
