-- Idle stretches of the past by kind of workload: how long, and whether they ended by themselves.
select
    workload_kind,
    epoch("end" - start) / 3600 as hours,
    "end" < $now - to_seconds($fresh_s) as ended,
    cluster,
    namespace,
    workload,
    start,
    "end"
from finding
where
    analyzer = 'idle'
    and verdict = 'idle'
    and start < $now
    and "end" <= $now
order by workload_kind, cluster, namespace, workload, start
