insert into runner (id, name, body) values (?, ?, ?)
on conflict (id) do update set name = excluded.name, body = excluded.body;
