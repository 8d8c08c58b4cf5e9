with settled as materialized (select pg_advisory_xact_lock_shared($4, $5))
insert into document (kind, key, body) select $1, $2, $3 from settled
on conflict (kind, key) do update set body = excluded.body;
