-- The hours in which workloads had devices allocated, and whether they were active in them: a
-- device from the exit threshold on, a busy or recently used kernel, or served requests. Millions
-- of rows are grouped and sorted by a workload's number, not by its four names.
WITH holders AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        pod,
        device,
        start AS from_at,
        coalesce("end", $until) AS to_at,
        dense_rank() OVER (ORDER BY cluster, namespace, workload_kind, workload) AS number
    FROM allocation
    WHERE start < $until AND coalesce("end", $until) > $since
),

device_hours AS (
    SELECT
        a.number,
        r.bucket,
        max(coalesce(r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0, false)) AS computes
    FROM holders AS a
    INNER JOIN rollup_1h AS r
        ON
            a.cluster = r.cluster AND a.device = r.device
            AND a.from_at <= r.bucket AND a.to_at >= r.bucket + INTERVAL 1 HOUR
    WHERE r.bucket >= $since AND r.bucket + INTERVAL 1 HOUR <= $until
    GROUP BY a.number, r.bucket
    HAVING sum(r.act_n) > 0
),

pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        number
    FROM holders
),

intents AS (
    SELECT
        p.number,
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
        p.number,
        time_bucket(INTERVAL 1 HOUR, s.ts) AS bucket
    FROM pod_sample AS s
    INNER JOIN pods AS p ON s.cluster = p.cluster AND s.namespace = p.namespace AND s.pod = p.pod
    WHERE s.ts >= $since AND s.ts < $until AND s.requests_per_s > 0
),

workloads AS (
    SELECT DISTINCT
        number,
        cluster,
        namespace,
        workload_kind,
        workload
    FROM holders
)

SELECT
    w.cluster,
    w.namespace,
    w.workload_kind,
    w.workload,
    epoch_us(h.bucket) AS hour,
    h.computes OR i.bucket IS NOT null AS active
FROM device_hours AS h
INNER JOIN workloads AS w ON h.number = w.number
LEFT JOIN intents AS i ON h.number = i.number AND h.bucket = i.bucket
ORDER BY h.number, h.bucket
