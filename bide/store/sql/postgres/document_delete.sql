with settled as materialized (select pg_advisory_xact_lock_shared($3, $4))
delete from document using settled where kind = $1 and key = $2;
