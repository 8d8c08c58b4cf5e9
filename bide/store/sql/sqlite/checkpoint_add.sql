insert into checkpoint (session, body) values (?, ?);
