-- The use of devices after their workloads were stopped: seconds of each use, by device and
-- stretch. If the next workload on a device was stopped too, the later stop explains why the device
-- is free, and takes its share from the earlier one: no second of a device is saved twice.
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

-- the devices that the workload had at its stop
allocated as (
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

-- times at which the set of stopped workloads on a device changes
edges as (
    select distinct
        cluster,
        device,
        unnest([acted, back]) as edge
    from allocated
),

cuts as (
    select
        h.action,
        h.cluster,
        h.device,
        e.edge as since,
        lead(e.edge) over (partition by h.action, h.cluster, h.device order by e.edge) as until
    from allocated as h
    inner join edges as e
        on
            h.cluster = e.cluster
            and h.device = e.device
            and h.acted <= e.edge
            and h.back >= e.edge
),

-- the share that no later stop has taken
left_over as (
    select
        h.action,
        h.cluster,
        h.namespace,
        h.workload,
        h.device,
        h.acted,
        h.back,
        h.share,
        c.since,
        c.until,
        greatest(0.0, least(any_value(h.share), 1.0 - coalesce(sum(o.share), 0.0))) as kept_share
    from allocated as h
    inner join cuts as c
        on h.action = c.action and h.cluster = c.cluster and h.device = c.device
    left join allocated as o
        on
            h.cluster = o.cluster
            and h.device = o.device
            and (o.acted, o.action) > (h.acted, h.action)
            and c.since >= o.acted
            and c.until <= o.back
    where c.until is not null
    group by
        h.action, h.cluster, h.namespace, h.workload, h.device, h.acted, h.back, h.share,
        c.since, c.until
),

-- when each cluster's inventory was last read, node by node or another
inventories as (
    select
        cluster,
        max(last_seen) as last_read
    from node
    group by cluster
),

-- nodes that an event reports as deleted or reclaimed
removals as (
    select
        cluster,
        name as node,
        max(ts) as removed
    from event
    where kind = 'Node' and list_contains($removals::varchar[], reason)
    group by cluster, name
),

-- when the device was last seen, and from when on its node is known to be gone: by an event, or
-- because a later inventory does not have it
there as (
    select
        h.*,
        d.weight,
        d.node,
        n.capacity_type,
        n.provider,
        d.last_seen as seen_until,
        case
            when r.removed >= n.last_seen - to_seconds($gone_s)
                then greatest(n.last_seen, r.removed)
            when i.last_read > n.last_seen + to_seconds($gone_s) then n.last_seen
        end as gone_at,
        min(h.since) filter (where h.kept_share < h.share)
            over (partition by h.action, h.cluster, h.device) as taken_over
    from left_over as h
    inner join device as d on h.cluster = d.cluster and h.device = d.device
    left join node as n on d.cluster = n.cluster and d.node = n.node
    left join inventories as i on d.cluster = i.cluster
    left join removals as r on d.cluster = r.cluster and d.node = r.node
),

-- the workloads on the device since
since as (
    select
        t.action,
        t.device,
        t.since,
        sum(
            al.share
            * epoch(least(coalesce(al."end", t.until), t.until) - greatest(al.start, t.since))
        ) filter (where al.workload = t.workload and al.namespace = t.namespace) as own_s,
        sum(
            al.share
            * epoch(least(coalesce(al."end", t.until), t.until) - greatest(al.start, t.since))
        ) filter (
            where (al.workload <> t.workload or al.namespace <> t.namespace) and al.start >= t.acted
        ) as served_s
    from there as t
    inner join allocation as al
        on
            t.cluster = al.cluster
            and t.device = al.device
            and t.until > al.start
            and t.since < coalesce(al."end", t.until)
    group by t.action, t.device, t.since
)

select
    t.action,
    t.cluster,
    t.device,
    t.node,
    t.since,
    t.until,
    t.back,
    t.weight,
    t.share,
    t.kept_share,
    t.taken_over,
    t.since = t.acted as is_first,
    t.capacity_type,
    t.provider,
    t.seen_until,
    t.gone_at,
    coalesce(s.own_s, 0.0) as own_s,
    coalesce(s.served_s, 0.0) as served_s
from there as t
left join since as s on t.action = s.action and t.device = s.device and t.since = s.since
order by t.action, t.device, t.since
