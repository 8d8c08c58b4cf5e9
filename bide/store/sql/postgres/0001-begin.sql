-- Texts are ordered by their bytes, as everywhere in bide.

-- A session's state beside the columns that it is found by. `runner` and `lease_until` are its lease's.
-- Most writes change no column that an index has, and stay in their page while it has room: hence the fill factor.
create table session (
  id text collate "C" primary key,
  version integer not null,
  lifecycle text collate "C" not null,
  project text collate "C" not null,
  ticket text collate "C" not null,
  pool text collate "C" not null,
  runtime text collate "C" not null,
  runner text collate "C",
  queued_at double precision not null,
  wake_at double precision,
  lease_until double precision,
  last_seq bigint not null,
  body bytea not null
) with (
  fillfactor = 75, toast_tuple_target = 4080,
  autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_scale_factor = 0.02
);
-- Written with each fact: not compressed anew each time, and kept apart only where two of them do not fit into a page.
alter table session alter column body set storage external;
create index session_listed on session (lifecycle, id);
create index session_of_project on session (project, lifecycle, id);
create index session_of_ticket on session (ticket, lifecycle, id) where ticket <> '';
create index session_due on session (wake_at, id) where wake_at is not null;
create index session_waiting on session (pool, runtime, queued_at, id) where lifecycle = 'queued';
create index session_leased on session (runner, id) where runner is not null;
create index session_held on session (pool) where runner is not null;
create index session_filed on session (version);

-- The log.
create table event (
  session text collate "C" not null,
  seq bigint not null,
  id text collate "C" not null,
  epoch integer not null,
  n integer not null,
  time double precision not null,
  type text collate "C" not null,
  turn integer not null,
  actor text collate "C" not null,
  version integer not null,
  body bytea not null,
  primary key (session, seq)
);

create table input (
  session text collate "C" not null,
  id text collate "C" not null,
  seq bigint not null,
  body bytea not null,
  primary key (session, id)
) with (fillfactor = 80);
create index input_in_order on input (session, seq);

create table question (
  id text collate "C" primary key,
  session text collate "C" not null,
  status text collate "C" not null,
  rank integer not null,
  asked_at double precision not null,
  body bytea not null
);
create index question_of_session on question (session, asked_at, id);
create index question_of_status on question (status, rank, asked_at, id);
create index question_in_order on question (rank, asked_at, id);

-- `place` keeps the order of saving: the number n of a checkpoint can come again after a session went back.
create table checkpoint (
  place bigint generated always as identity primary key,
  session text collate "C" not null,
  body bytea not null
);
create index checkpoint_of_session on checkpoint (session, place);

create table runner (
  id text collate "C" primary key,
  name text collate "C" not null,
  pool text collate "C" not null,
  boot text collate "C" not null,
  body bytea not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index runner_of_pool on runner (pool, name, id);

create table document (
  kind text collate "C" not null,
  key text collate "C" not null,
  body bytea not null,
  primary key (kind, key)
);
