-- Runs of similar workloads (names that differ only in a number or hash at the end): how many, how
-- long, how regular, and how busy their GPUs were.
WITH runs AS (
    SELECT
        cluster,
        coalesce(namespace, '') AS namespace,
        workload_kind,
        workload,
        regexp_replace(workload, '([-_.]?[0-9]+|[-_.][a-z0-9]*[0-9][a-z0-9]*)+$', '') AS stem,
        max(gpu_request) AS gpus,
        min(coalesce(scheduled_at, first_seen)) AS start,
        max(coalesce(finished_at, last_seen)) AS "end",
        bool_or(owner_kind = 'CronJob') AS cron
    FROM pod
    WHERE
        gpu_request > 0
        AND workload IS NOT null
        AND coalesce(scheduled_at, first_seen) < $until::TIMESTAMP
        AND coalesce(finished_at, last_seen) >= $since::TIMESTAMP
    GROUP BY ALL
),

gaps AS (
    SELECT
        *,
        epoch(start - lag(start) OVER (
            PARTITION BY cluster, namespace, workload_kind, stem ORDER BY start, workload
        )) / 3600 AS gap_h
    FROM runs
),

workload_hours AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        sum(gpu_seconds) / 3600 AS gpu_hours,
        coalesce(sum(gpu_seconds) FILTER (WHERE state <> 'unknown'), 0) / 3600 AS known_hours,
        coalesce(sum(gpu_seconds) FILTER (WHERE state = 'productive'), 0) / 3600 AS busy_hours
    FROM ledger
    WHERE
        bucket >= date_trunc('hour', $since::TIMESTAMP)
        AND bucket < $until::TIMESTAMP
        AND namespace <> ''
    GROUP BY ALL
)

SELECT
    g.cluster,
    g.namespace,
    g.workload_kind,
    g.stem,
    count(*) AS runs,
    max(g.gpus) AS gpus,
    median(epoch(g."end" - g.start) / 3600) AS run_h,
    median(g.gap_h) AS gap_h,
    stddev_samp(g.gap_h) / nullif(avg(g.gap_h), 0) AS gap_spread,
    bool_or(g.cron OR g.workload_kind = 'CronJob') AS cron,
    coalesce(sum(h.gpu_hours), 0) AS gpu_hours,
    coalesce(sum(h.known_hours), 0) AS known_hours,
    coalesce(sum(h.busy_hours), 0) AS busy_hours
FROM gaps AS g
LEFT JOIN workload_hours AS h
    ON
        g.cluster = h.cluster
        AND g.namespace = h.namespace
        AND g.workload_kind = h.workload_kind
        AND g.workload = h.workload
GROUP BY ALL
ORDER BY ALL
