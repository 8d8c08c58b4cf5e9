select pg_notify('bide', $1);
