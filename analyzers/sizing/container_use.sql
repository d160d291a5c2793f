-- The use of each container of some workloads over the lookback: for each of its pods the 95th
-- percentile of CPU and the maximum memory, for all of them the time in which any had samples.
WITH workloads AS MATERIALIZED (
    SELECT
        h.cluster,
        h.namespace,
        h.workload_kind,
        h.workload,
        row_number() OVER () AS number
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
        w.number,
        p.cluster,
        p.namespace,
        p.pod,
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
        p.number,
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

use_per_pod AS (
    SELECT
        number,
        container,
        quantile_cont(cpu_cores, 0.95) AS cpu_p95,
        max(cpu_cores) AS cpu_max,
        max(memory_bytes) AS memory_max
    FROM samples
    GROUP BY number, container, pod
),

most_used AS (
    SELECT
        number,
        container,
        max(cpu_p95) AS cpu_p95,
        max(cpu_max) AS cpu_max,
        max(memory_max) AS memory_max
    FROM use_per_pod
    GROUP BY number, container
),

seconds_per_hour AS (
    SELECT
        number,
        container,
        pod,
        date_trunc('hour', ts) AS hour_at,
        count(cpu_cores) * max(interval_s) AS cpu_s,
        count(memory_bytes) * max(interval_s) AS memory_s
    FROM samples
    GROUP BY ALL
),

-- Replicas run at the same time: for each hour the pod with the longest samples counts.
longest_per_hour AS (
    SELECT
        number,
        container,
        max(cpu_s) AS cpu_s,
        max(memory_s) AS memory_s
    FROM seconds_per_hour
    GROUP BY number, container, hour_at
),

covered AS (
    SELECT
        number,
        container,
        sum(cpu_s) AS cpu_s,
        sum(memory_s) AS memory_s
    FROM longest_per_hour
    GROUP BY number, container
)

SELECT
    w.cluster,
    w.namespace,
    w.workload_kind,
    w.workload,
    c.container,
    c.cpu_s,
    c.memory_s,
    u.cpu_p95,
    u.cpu_max,
    u.memory_max
FROM covered AS c
INNER JOIN most_used AS u ON c.number = u.number AND c.container = u.container
INNER JOIN workloads AS w ON c.number = w.number
ORDER BY ALL
