-- Not `to_regclass`: that remembers, through the wait for another server that makes it, that there was none.
select exists (select from pg_class where relname = 'form' and relnamespace = to_regnamespace(current_schema()));
