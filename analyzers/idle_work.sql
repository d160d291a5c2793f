-- When the pods of each stretch were at work, although their devices rested: a kernel or terminal
-- that did something, requests served, CPU, network or files in two looks in a row. What is less
-- than $apart_us apart is one interval. The looks after a stretch tell of its last moments: a mean
-- over the device's own interval hides what began late in it.
WITH asked AS (
    SELECT
        s.span,
        s.cluster,
        s.namespace,
        s.pod,
        s.start_at,
        s.end_at,
        greatest(1.0, coalesce(p.cpu_request_milli, 1000) / 1000) * $cpu_share AS cores
    FROM idle_span AS s
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
            AND a.start_at <= h.ts AND a.end_at + to_microseconds($after_us) > h.ts
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
            AND a.start_at <= n.ts AND a.end_at + to_microseconds($after_us) > n.ts
    WHERE n.ts >= $since AND n.ts < $until
    WINDOW servers AS (PARTITION BY a.span, a.cluster, a.namespace, a.pod ORDER BY n.ts)
),

told AS (
    -- A look speaks for the time since the look before it.
    SELECT
        span,
        CASE WHEN works THEN coalesce(earlier_ts, before_ts) ELSE before_ts END AS from_at,
        ts AS to_at
    FROM followed
    WHERE works OR serves
    UNION ALL
    SELECT
        span,
        before_ts AS from_at,
        ts AS to_at
    FROM notebooks
    WHERE busy_kernels > 0
    UNION ALL
    SELECT DISTINCT
        span,
        last_kernel_activity AS from_at,
        last_kernel_activity AS to_at
    FROM notebooks
    WHERE last_kernel_activity > start_at AND last_kernel_activity < end_at
    UNION ALL
    SELECT DISTINCT
        span,
        last_terminal_activity AS from_at,
        last_terminal_activity AS to_at
    FROM notebooks
    WHERE last_terminal_activity > start_at AND last_terminal_activity < end_at
),

reached AS (
    SELECT
        span,
        epoch_us(from_at) AS from_us,
        epoch_us(to_at) AS to_us,
        max(epoch_us(to_at)) OVER (
            PARTITION BY span ORDER BY from_at, to_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_us
    FROM told
),

islands AS (
    SELECT
        span,
        from_us,
        to_us,
        sum((before_us IS null OR from_us - before_us >= $apart_us)::INTEGER) OVER (
            PARTITION BY span ORDER BY from_us, to_us
        ) AS island
    FROM reached
)

SELECT
    span,
    min(from_us) AS from_us,
    max(to_us) AS to_us
FROM islands
GROUP BY span, island
ORDER BY span, from_us
