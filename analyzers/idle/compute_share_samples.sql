-- How busy the other devices of a partly idle workload were, from raw samples.
WITH span AS (
    SELECT
        unnest($spans) AS span,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        make_timestamp(unnest($starts)) AS start_at,
        make_timestamp(unnest($ends)) AS end_at
),

readings AS (
    SELECT
        s.span,
        s.device,
        m.activity,
        coalesce(m.gr_engine_active <= 0.010001 AND m.gpu_util_pct >= 10, false) AS conflict
    FROM span AS s
    INNER JOIN active_sample AS m
        ON
            s.cluster = m.cluster AND s.device = m.device
            AND s.start_at <= m.ts AND s.end_at > m.ts
    WHERE m.ts >= $since AND m.ts < $until
)

SELECT
    span,
    device,
    count(activity) AS samples,
    count(activity) FILTER (WHERE activity >= $exit_threshold - 1e-6 AND NOT conflict) AS busy
FROM readings
GROUP BY span, device
ORDER BY span, device
