update session set wake_at = ? where id in (select value from json_each(?));
