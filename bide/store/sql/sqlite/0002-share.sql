-- What a runner asks the queue by, the load of each pool, and which rows another release filed.
alter table session add column pool text not null default '';
alter table session add column runtime text not null default '';
update session set
  pool = coalesce(json_extract(cast(body as text), '$.pool'), ''),
  runtime = coalesce(json_extract(cast(body as text), '$.runtime'), '');
create index session_waiting on session (pool, queued_at, id, runtime) where lifecycle = 'queued';
create index session_held on session (pool, runner) where runner is not null;
create index session_filed on session (version);

alter table runner add column pool text not null default '';
alter table runner add column boot text not null default '';
update runner set
  pool = coalesce(json_extract(cast(body as text), '$.pool'), ''),
  boot = coalesce(json_extract(cast(body as text), '$.boot'), '');
create index runner_of_pool on runner (pool, name, id);

-- One row. `contracted`: the newest step whose second half was done; `oldest`: the oldest release, by the number of its
-- newest step, that can still work on this database.
create table form (contracted integer not null, oldest integer not null) strict;
insert into form (contracted, oldest) values (0, 1);
