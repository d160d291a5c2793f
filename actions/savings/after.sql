-- What became of the devices that stopped workloads had held: seconds of each, by device.
with acts as (
    select unnest(
        from_json(
            $acts,
            '[{
                "action": "VARCHAR", "cluster": "VARCHAR", "namespace": "VARCHAR",
                "workload_kind": "VARCHAR", "workload": "VARCHAR",
                "acted": "TIMESTAMP", "back": "TIMESTAMP"
            }]'
        ),
        recursive := true
    )
),

-- the devices it held when it was stopped
held as (
    select
        a.action,
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        a.acted,
        a.back,
        al.device,
        max(al.share) as share
    from acts as a
    inner join allocation as al
        on
            a.cluster = al.cluster
            and a.namespace = al.namespace
            and a.workload_kind = al.workload_kind
            and a.workload = al.workload
            and a.acted >= al.start
            and a.acted - to_seconds($slack_s) < coalesce(al."end", a.acted)
    group by all
),

-- when the device itself, or its node, was last seen
there as (
    select
        h.*,
        d.weight,
        d.node,
        n.capacity_type,
        n.provider,
        least(d.last_seen, coalesce(n.last_seen, d.last_seen)) as seen_until
    from held as h
    inner join device as d on h.cluster = d.cluster and h.device = d.device
    left join node as n on d.cluster = n.cluster and d.node = n.node
),

-- who held it since
since as (
    select
        t.action,
        t.device,
        sum(
            al.share
            * epoch(least(coalesce(al."end", t.back), t.back) - greatest(al.start, t.acted))
        ) filter (where al.workload = t.workload and al.namespace = t.namespace) as own_s,
        sum(
            al.share
            * epoch(least(coalesce(al."end", t.back), t.back) - greatest(al.start, t.acted))
        ) filter (
            where (al.workload <> t.workload or al.namespace <> t.namespace) and al.start >= t.acted
        ) as served_s
    from there as t
    inner join allocation as al
        on
            t.cluster = al.cluster
            and t.device = al.device
            and t.back > al.start
            and t.acted < coalesce(al."end", t.back)
    group by t.action, t.device
)

select
    t.action,
    t.cluster,
    t.device,
    t.node,
    t.acted,
    t.back,
    t.weight,
    t.share,
    t.capacity_type,
    t.provider,
    t.seen_until,
    coalesce(s.own_s, 0.0) as own_s,
    coalesce(s.served_s, 0.0) as served_s
from there as t
left join since as s on t.action = s.action and t.device = s.device
order by t.action, t.device
