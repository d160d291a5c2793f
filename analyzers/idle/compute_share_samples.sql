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
        greatest(
            m.gr_engine_active, m.gpu_util_pct / 100, m.sm_active, m.tensor_active,
            m.fp64_active, m.fp32_active, m.fp16_active, m.dram_active, m.enc_util_pct / 100,
            m.dec_util_pct / 100, m.mem_copy_util_pct / 100
        ) AS activity,
        coalesce(m.gr_engine_active <= 0.010001 AND m.gpu_util_pct >= 10, false) AS conflict
    FROM span AS s
    INNER JOIN sample AS m
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
