with inputs as (delete from input where session = $1),
  questions as (delete from question where session = $1),
  checkpoints as (delete from checkpoint where session = $1)
delete from session where id = $1;
