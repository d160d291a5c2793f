-- The use of each container of some workloads over the lookback: for each of its pods the 95th
-- percentile of CPU and the maximum memory, for all of them the time in which any had samples.
WITH workloads AS (
    SELECT
        h.cluster,
        h.namespace,
        h.workload_kind,
        h.workload
    FROM (
        SELECT
            unnest(
                from_json(
                    $workloads,
                    '[{"cluster": "VARCHAR", "namespace": "VARCHAR", "workload_kind": "VARCHAR",
                       "workload": "VARCHAR"}]'
                )
            ) AS h
    ) AS listed
),

pods AS (
    SELECT
        p.cluster,
        p.namespace,
        p.pod,
        w.workload_kind,
        w.workload,
        min(coalesce(p.started_at, p.created_at, p.first_seen)) AS start,
        max(coalesce(p.finished_at, p.last_seen)) AS "end"
    FROM pod AS p
    INNER JOIN workloads AS w
        ON
            p.cluster = w.cluster
            AND p.namespace = w.namespace
            AND p.workload_kind = w.workload_kind
            AND p.workload = w.workload
    GROUP BY ALL
),

samples AS NOT MATERIALIZED (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        s.container,
        s.pod,
        s.ts,
        s.interval_s,
        s.cpu_cores,
        s.memory_bytes
    FROM container_sample AS s
    INNER JOIN pods AS p
        ON
            s.cluster = p.cluster
            AND s.namespace = p.namespace
            AND s.pod = p.pod
            AND (p.start IS null OR s.ts >= p.start - INTERVAL 5 MINUTE)
            AND (p."end" IS null OR s.ts <= p."end" + INTERVAL 10 MINUTE)
    WHERE s.ts >= $since AND s.ts < $until
),

per_pod AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        container,
        quantile_cont(cpu_cores, 0.95) AS cpu_p95,
        max(cpu_cores) AS cpu_max,
        max(memory_bytes) AS memory_max
    FROM samples
    GROUP BY cluster, namespace, workload_kind, workload, container, pod
),

per_hour AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        container,
        pod,
        date_trunc('hour', ts) AS hour_at,
        count(cpu_cores) * max(interval_s) AS cpu_s,
        count(memory_bytes) * max(interval_s) AS memory_s
    FROM samples
    GROUP BY ALL
),

-- Replicas run at the same time: for each hour the pod with the longest samples counts.
hours AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        container,
        hour_at,
        max(cpu_s) AS cpu_s,
        max(memory_s) AS memory_s
    FROM per_hour
    GROUP BY ALL
),

seen AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        container,
        sum(cpu_s) AS cpu_s,
        sum(memory_s) AS memory_s
    FROM hours
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.namespace,
    s.workload_kind,
    s.workload,
    s.container,
    s.cpu_s,
    s.memory_s,
    max(u.cpu_p95) AS cpu_p95,
    max(u.cpu_max) AS cpu_max,
    max(u.memory_max) AS memory_max
FROM seen AS s
INNER JOIN per_pod AS u
    ON
        s.cluster = u.cluster
        AND s.namespace = u.namespace
        AND s.workload_kind = u.workload_kind
        AND s.workload = u.workload
        AND s.container = u.container
GROUP BY ALL
ORDER BY ALL
