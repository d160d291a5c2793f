-- Energy only increases (a reset counts from zero), and no faster than 1.2 times the GPU's TDP over
-- the hour plus the longest gap that one increase may span.
WITH tdp AS (
    SELECT
        unnest($models) AS gpu_model,
        unnest($tdp_w) AS tdp_w
),

used AS (
    SELECT
        cluster,
        device,
        bucket,
        min(energy_mj) AS least_mj,
        sum(energy_mj) AS energy_mj,
        1.2 * 1000 * (3600 + 3 * max(interval_s)) AS mj_per_w
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until AND energy_mj IS NOT NULL
    GROUP BY cluster, device, bucket
)

SELECT
    u.cluster,
    u.device,
    u.bucket,
    u.energy_mj,
    u.mj_per_w * t.tdp_w AS limit_mj
FROM used AS u
LEFT JOIN device AS d ON u.cluster = d.cluster AND u.device = d.device
LEFT JOIN tdp AS t ON d.gpu_model = t.gpu_model
WHERE u.least_mj < 0 OR u.energy_mj > u.mj_per_w * t.tdp_w
ORDER BY u.cluster, u.device, u.bucket
