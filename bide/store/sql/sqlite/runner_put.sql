insert into runner (id, name, pool, boot, body) values (?, ?, ?, ?, ?)
on conflict (id) do update set name = excluded.name, pool = excluded.pool, boot = excluded.boot, body = excluded.body;
