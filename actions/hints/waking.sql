with pods as (
    select distinct
        cluster,
        namespace,
        pod
    from pod
    where
        cluster = $cluster
        and namespace = $namespace
        and workload_kind = $workload_kind
        and workload = $workload
),

looks as (
    select
        r.bucket >= $taken as told,
        r.tensor_active_mean * r.tensor_active_n as active,
        r.tensor_active_n as looks,
        r.busy_s
    from rollup_1h as r
    inner join pods as p
        on r.cluster = p.cluster and r.namespace = p.namespace and r.pod = p.pod
    where
        r.busy_s > 0
        and r.bucket >= $since
        and r.bucket < $until
)

select
    sum(active) filter (where not told)
    / nullif(sum(looks) filter (where not told), 0) as before,
    sum(active) filter (where told) / nullif(sum(looks) filter (where told), 0) as after,
    coalesce(sum(busy_s) filter (where not told), 0) / 3600 as hours_before,
    coalesce(sum(busy_s) filter (where told), 0) / 3600 as hours_after
from looks
