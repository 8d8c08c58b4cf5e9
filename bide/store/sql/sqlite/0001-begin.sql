-- A session's state beside the columns that it is found by. `runner` and `lease_until` are its lease's.
create table session (
  id text primary key,
  version integer not null,
  lifecycle text not null,
  project text not null,
  ticket text not null,
  runner text,
  lease_until real,
  queued_at real not null,
  wake_at real,
  last_seq integer not null,
  body blob not null
) strict;
create index session_listed on session (lifecycle, id);
create index session_of_project on session (project, lifecycle, id);
create index session_of_ticket on session (ticket, lifecycle, id) where ticket <> '';
create index session_due on session (wake_at, id) where wake_at is not null;
create index session_queued on session (queued_at, id) where lifecycle = 'queued';
create index session_leased on session (runner, id) where runner is not null;

-- The log. Its key is its order, so a session's facts lie side by side.
create table event (
  session text not null,
  seq integer not null,
  id text not null,
  epoch integer not null,
  n integer not null,
  time real not null,
  type text not null,
  turn integer not null,
  actor text not null,
  version integer not null,
  body blob not null,
  primary key (session, seq)
) strict, without rowid;

create table input (
  session text not null,
  id text not null,
  seq integer not null,
  body blob not null,
  primary key (session, id)
) strict;
create index input_in_order on input (session, seq);

create table question (
  id text primary key,
  session text not null,
  status text not null,
  asked_at real not null,
  body blob not null
) strict;
create index question_of_session on question (session, asked_at, id);
create index question_by_status on question (status, asked_at, id);

-- `place` keeps the order of saving: the number n of a checkpoint can come again after a session went back.
create table checkpoint (
  place integer primary key,
  session text not null,
  body blob not null
) strict;
create index checkpoint_of_session on checkpoint (session, place);

create table runner (
  id text primary key,
  name text not null,
  body blob not null
) strict;

create table document (
  kind text not null,
  key text not null,
  body blob not null,
  primary key (kind, key)
) strict, without rowid;
