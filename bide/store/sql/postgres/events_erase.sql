with gone as (
  delete from event
  where session = $1 and seq <= (select max(seq) from (select seq from event where session = $1 order by seq limit $2) as first)
  returning 1
)
select count(*) from gone;
