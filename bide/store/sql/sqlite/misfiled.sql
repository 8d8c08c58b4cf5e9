select id from session where version < :version or version > :version limit :limit;
