-- The cost of a restart: hours in which a workload that came back was starting.
with acts as (
    select unnest(
        from_json(
            $acts,
            '[{
                "action": "VARCHAR", "cluster": "VARCHAR", "namespace": "VARCHAR",
                "workload_kind": "VARCHAR", "workload": "VARCHAR", "back": "TIMESTAMP"
            }]'
        ),
        recursive := true
    )
)

select
    a.action,
    sum(l.gpu_seconds) / 3600 as gpu_hours,
    sum(l.usd) as usd,
    bool_or(not l.priced) as unpriced
from acts as a
inner join ledger as l
    on
        a.cluster = l.cluster
        and a.namespace = l.namespace
        and a.workload_kind = l.workload_kind
        and a.workload = l.workload
        and l.state = 'startup'
        and l.bucket >= date_trunc('hour', a.back)
        and l.bucket < a.back + to_seconds($within_s)
group by a.action
order by a.action
