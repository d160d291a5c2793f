-- Thirty days of 5-minute rollups of a fleet, as the rollup would have left them.
INSERT INTO rollup_5m BY NAME
SELECT
    'bench' AS cluster,
    TIMESTAMP '2026-10-01' + to_seconds(300 * (b + $first)) AS bucket,
    'GPU-' || md5(d::VARCHAR) AS device,
    'team-' || (d // 64) % 40 AS namespace,
    'job-' || d // 8 || '-' || (b + $first) // 96 AS pod,
    'node-' || d // 8 AS node,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    60 AS interval_s,
    5 AS n,
    5 AS expected,
    300 AS covered_s,
    CASE WHEN x < 0.3 THEN 300 ELSE 0 END AS idle_s,
    0 AS low_s,
    CASE WHEN x < 0.3 THEN 0 ELSE 300 END AS busy_s,
    0 AS conflict_s,
    0 AS blind_s,
    5 AS act_n,
    CASE WHEN x < 0.3 THEN 0 ELSE x END AS act_mean,
    CASE WHEN x < 0.3 THEN 0 ELSE x END AS act_max,
    5 AS gpu_util_pct_n,
    CASE WHEN x < 0.3 THEN 0 ELSE floor(x * 100) END AS gpu_util_pct_mean
FROM (
    SELECT
        d,
        b,
        (hash(d // 8, (b + $first) // 24) % 1000) / 1000.0 AS x
    FROM range($devices) AS g (d), range($buckets) AS t (b) -- noqa: AL05
) AS random_buckets
ORDER BY device, bucket
