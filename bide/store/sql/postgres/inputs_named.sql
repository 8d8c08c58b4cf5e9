select i.body from unnest($1::text[], $2::text[]) r(session, id) join input i on i.session = r.session and i.id = r.id;
