-- Locked: nobody is granted it before it is gone.
select runner from session where id = $1 for update;
