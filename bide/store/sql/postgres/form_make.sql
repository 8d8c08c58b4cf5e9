-- One row. `applied`: the newest step that was done; `contracted`: the newest whose second half was; `oldest`: the oldest
-- release, by the number of its newest step, that can still work on this database.
create table form (applied integer not null, contracted integer not null, oldest integer not null);
insert into form (applied, contracted, oldest) values (0, 0, 1);
