select pg_advisory_xact_lock($1, $2), extract(epoch from clock_timestamp())::double precision;
