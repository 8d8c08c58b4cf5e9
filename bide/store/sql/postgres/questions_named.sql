select body from question where id = any($1::text[]);
