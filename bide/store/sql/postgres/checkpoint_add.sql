insert into checkpoint (session, body)
select session, body from unnest($1::text[], $2::bytea[]) with ordinality r(session, body, place) order by place;
