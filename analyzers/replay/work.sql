-- When the pods of stretches were at work beside their devices, as idle_work.sql tells it, and when
-- that was known: one row per look or activity, none merged. $held is a list of stretches' pods.
WITH span AS (
    SELECT
        h.span,
        h.cluster,
        h.namespace,
        h.pod,
        h.pod_uid AS uid,
        make_timestamp(h.start) AS start_at, -- noqa: RF01
        make_timestamp(h."end") AS end_at -- noqa: RF01
    FROM (
        SELECT
            unnest(
                from_json(
                    $held,
                    '[{
                        "span": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                        "pod": "VARCHAR", "pod_uid": "VARCHAR", "start": "BIGINT", "end": "BIGINT"
                    }]'
                )
            ) AS h
    ) AS listed
),

asked AS (
    SELECT
        s.span,
        s.cluster,
        s.namespace,
        s.pod,
        s.start_at,
        s.end_at,
        greatest(1.0, coalesce(p.cpu_request_milli, 1000) / 1000) * $cpu_share AS cores
    FROM span AS s
    LEFT JOIN pod AS p ON s.cluster = p.cluster AND s.uid = p.uid
),

hosts AS (
    SELECT
        a.span,
        a.cluster,
        a.namespace,
        a.pod,
        h.ts,
        h.requests_per_s > 0 AS serves,
        coalesce(h.cpu_cores > a.cores, false)
        OR coalesce(h.net_rx_bps + h.net_tx_bps >= $bytes_s, false)
        OR coalesce(h.fs_write_bps >= $bytes_s, false) AS works
    FROM asked AS a
    INNER JOIN pod_sample AS h
        ON
            a.cluster = h.cluster AND a.namespace = h.namespace AND a.pod = h.pod
            AND a.start_at <= h.ts AND a.end_at > h.ts
    WHERE h.ts >= $since AND h.ts < $until
),

followed AS (
    SELECT
        span,
        ts,
        serves,
        works AND lag(works, 1, false) OVER pods AS works,
        lag(ts, 1, ts) OVER pods AS before_ts,
        lag(ts, 2) OVER pods AS earlier_ts
    FROM hosts
    WINDOW pods AS (PARTITION BY span, cluster, namespace, pod ORDER BY ts)
),

notebooks AS (
    SELECT
        a.span,
        a.start_at,
        a.end_at,
        n.ts,
        lag(n.ts, 1, n.ts) OVER servers AS before_ts,
        n.busy_kernels,
        n.last_kernel_activity,
        n.last_terminal_activity
    FROM asked AS a
    INNER JOIN notebook_sample AS n
        ON
            a.cluster = n.cluster AND a.namespace = n.namespace AND a.pod = n.pod
            AND a.start_at <= n.ts AND a.end_at > n.ts
    WHERE n.ts >= $since AND n.ts < $until
    WINDOW servers AS (PARTITION BY a.span, a.cluster, a.namespace, a.pod ORDER BY n.ts)
),

told AS (
    SELECT
        span,
        CASE WHEN works THEN coalesce(earlier_ts, before_ts) ELSE before_ts END AS from_at,
        ts AS to_at,
        ts AS known_at
    FROM followed
    WHERE works OR serves
    UNION ALL
    SELECT
        span,
        before_ts AS from_at,
        ts AS to_at,
        ts AS known_at
    FROM notebooks
    WHERE busy_kernels > 0
    UNION ALL
    SELECT
        span,
        last_kernel_activity AS from_at,
        last_kernel_activity AS to_at,
        min(ts) AS known_at
    FROM notebooks
    WHERE last_kernel_activity > start_at AND last_kernel_activity < end_at
    GROUP BY ALL
    UNION ALL
    SELECT
        span,
        last_terminal_activity AS from_at,
        last_terminal_activity AS to_at,
        min(ts) AS known_at
    FROM notebooks
    WHERE last_terminal_activity > start_at AND last_terminal_activity < end_at
    GROUP BY ALL
)

SELECT
    span,
    epoch_us(from_at) AS from_us,
    epoch_us(to_at) AS to_us,
    epoch_us(known_at) AS known_us
FROM told
ORDER BY span, from_us, to_us
