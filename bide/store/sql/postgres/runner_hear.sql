-- A heartbeat that a crash of the database takes back does no harm: the next one comes soon. So no disk is waited for.
with careless as materialized (select set_config('synchronous_commit', 'off', true))
update runner set name = $1, pool = $2, body = $3 from careless where id = $4 and boot = $5 returning id;
