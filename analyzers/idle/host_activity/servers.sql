-- Each sample of those pods' notebook servers, with the time of the one before it.
SELECT
    a.span,
    a.start_at,
    a.end_at,
    n.ts,
    lag(n.ts, 1, n.ts) OVER servers AS before_ts,
    n.busy_kernels,
    n.last_kernel_activity,
    n.last_terminal_activity
FROM held_pods AS a
INNER JOIN notebook_sample AS n
    ON
        a.cluster = n.cluster AND a.namespace = n.namespace AND a.pod = n.pod
        AND a.start_at <= n.ts AND a.end_at + to_microseconds($after_us) > n.ts
WHERE n.ts >= $since AND n.ts < $until
WINDOW servers AS (PARTITION BY a.piece ORDER BY n.ts)
