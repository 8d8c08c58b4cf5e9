with settled as materialized (select pg_advisory_xact_lock_shared($6, $7))
insert into runner (id, name, pool, boot, body) select $1, $2, $3, $4, $5 from settled
on conflict (id) do update set name = excluded.name, pool = excluded.pool, boot = excluded.boot, body = excluded.body;
