-- The hours in which workloads had devices allocated, and whether they were active in them: a
-- device from the exit threshold on, a busy or recently used kernel, or served requests.
WITH device_hours AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        r.bucket,
        max(coalesce(r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0, false)) AS computes,
        sum(r.act_n) AS samples
    FROM allocation AS a
    INNER JOIN rollup_1h AS r
        ON
            a.cluster = r.cluster AND a.device = r.device
            AND a.start <= r.bucket AND coalesce(a."end", $until) >= r.bucket + INTERVAL 1 HOUR
    WHERE
        r.bucket >= $since AND r.bucket + INTERVAL 1 HOUR <= $until
        AND a.start < $until AND coalesce(a."end", $until) > $since
    GROUP BY ALL
),

pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        workload_kind,
        workload
    FROM allocation
    WHERE start < $until AND coalesce("end", $until) > $since
),

intents AS (
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        time_bucket(INTERVAL 1 HOUR, n.ts) AS bucket
    FROM notebook_sample AS n
    INNER JOIN pods AS p ON n.cluster = p.cluster AND n.namespace = p.namespace AND n.pod = p.pod
    WHERE
        n.ts >= $since AND n.ts < $until
        AND (
            n.busy_kernels > 0
            OR n.last_kernel_activity > n.ts - INTERVAL 10 MINUTE
            OR n.last_terminal_activity > n.ts - INTERVAL 10 MINUTE
        )
    UNION
    SELECT
        p.cluster,
        p.namespace,
        p.workload_kind,
        p.workload,
        time_bucket(INTERVAL 1 HOUR, s.ts) AS bucket
    FROM pod_sample AS s
    INNER JOIN pods AS p ON s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
    WHERE s.ts >= $since AND s.ts < $until AND s.requests_per_s > 0
)

SELECT
    h.cluster,
    h.namespace,
    h.workload_kind,
    h.workload,
    epoch_us(h.bucket) AS hour,
    h.computes OR i.bucket IS NOT null AS active
FROM device_hours AS h
LEFT JOIN intents AS i
    ON
        h.cluster = i.cluster AND h.namespace = i.namespace
        AND h.workload_kind = i.workload_kind AND h.workload = i.workload AND h.bucket = i.bucket
WHERE h.samples > 0
ORDER BY h.cluster, h.namespace, h.workload_kind, h.workload, h.bucket
