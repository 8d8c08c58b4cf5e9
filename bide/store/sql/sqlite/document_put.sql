insert into document (kind, key, body) values (?, ?, ?) on conflict (kind, key) do update set body = excluded.body;
