select id, version, lease_until, last_seq, body from session
where version < $1 and id <> all($2::text[]) limit $3 for update skip locked;
