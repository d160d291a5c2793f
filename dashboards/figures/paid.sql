-- The ledger's lines of the window under the names of `fallow spend`, filtered. The platform owns
-- unallocated time, under a name that no namespace or team can have. Grouping millions of rows by
-- the parts of `workload` and joining the parts afterwards takes a quarter of the time. Of the
-- allocated hours: those with known use, those with work, and effective hours where they were
-- measured.
SELECT
    bucket,
    first_bucket,
    last_bucket,
    cluster,
    CASE WHEN namespace = '' THEN '(platform)' ELSE namespace END AS namespace,
    CASE WHEN namespace = '' THEN '(platform)' ELSE coalesce(team, namespace) END AS team,
    CASE
        WHEN namespace = '' THEN '(platform)'
        ELSE namespace || '/' || workload_kind || '/' || workload
    END AS workload,
    workload_kind,
    workload AS workload_name,
    coalesce(model, '(unknown)') AS model,
    coalesce(pool, '(none)') AS pool,
    coalesce(node, '(unknown)') AS node,
    device,
    state,
    seconds / 3600 AS hours,
    gpu_seconds / 3600 AS gpu_hours,
    CASE WHEN $view = 'gpu' THEN usd_gpu ELSE usd END AS usd,
    usd AS usd_loaded,
    usd_gpu,
    CASE
        WHEN namespace <> '' AND state IN ('idle', 'low', 'productive', 'lost', 'startup')
            THEN gpu_seconds / 3600
    END AS known_gpu_hours,
    CASE
        WHEN namespace <> '' AND state IN ('low', 'productive', 'lost') THEN gpu_seconds / 3600
    END AS busy_gpu_hours,
    measured_gpu_seconds / 3600 AS measured_gpu_hours,
    effective_gpu_seconds / 3600 AS effective_gpu_hours,
    estimated,
    price_as_of,
    oldest_price_as_of
FROM ledger_lines
WHERE
    ($cluster IS null OR cluster = $cluster)
    AND (
        $team IS null
        OR CASE WHEN namespace = '' THEN '(platform)' ELSE coalesce(team, namespace) END = $team
    )
    AND (
        $namespace IS null
        OR CASE WHEN namespace = '' THEN '(platform)' ELSE namespace END = $namespace
    )
    AND ($model IS null OR coalesce(model, '(unknown)') = $model)
    AND ($pool IS null OR coalesce(pool, '(none)') = $pool)
