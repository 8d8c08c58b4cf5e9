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

-- The order of the inbox: made of the body by the database itself, so that it is right in rows that release 1 writes, too.
alter table question add column rank integer not null generated always as (
  iif(coalesce(json_extract(cast(body as text), '$.blocking'), 1), 0, 3)
  + case json_extract(cast(body as text), '$.impact') when 'high' then 0 when 'low' then 2 else 1 end
) virtual;
create index question_of_status on question (status, rank, asked_at, id);
create index question_in_order on question (rank, asked_at, id);

-- One row. `contracted`: the newest step whose second half was done; `oldest`: the oldest release, by the number of its
-- newest step, that can still work on this database.
create table form (contracted integer not null, oldest integer not null) strict;
insert into form (contracted, oldest) values (0, 1);
