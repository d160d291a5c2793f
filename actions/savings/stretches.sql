-- Idle stretches of the past. A finding that is judged hourly over a moving window has another
-- start each time: findings of one workload that touch, or are no more than $fresh_s apart, are one
-- stretch.
with findings as (
    select
        cluster,
        namespace,
        workload_kind,
        workload,
        start,
        "end",
        max("end") over (
            partition by cluster, namespace, workload_kind, workload
            order by start, "end"
            rows between unbounded preceding and 1 preceding
        ) as before_end
    from finding
    where
        analyzer = 'idle'
        and verdict = 'idle'
        and start < $now
        and "end" <= $now
),

islands as (
    select
        *,
        sum((before_end is null or start > before_end + to_seconds($fresh_s))::integer) over (
            partition by cluster, namespace, workload_kind, workload
            order by start, "end"
        ) as island
    from findings
)

select
    workload_kind,
    cluster,
    namespace,
    workload,
    min(start) as start,
    max("end") as "end"
from islands
group by cluster, namespace, workload_kind, workload, island
order by workload_kind, cluster, namespace, workload, start
