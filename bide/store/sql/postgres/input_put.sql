insert into input (session, id, seq, body) select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[])
on conflict (session, id) do update set seq = excluded.seq, body = excluded.body;
