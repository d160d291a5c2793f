-- One day of the fleet's five-minute rollups, as the rollup would have left them. A bucket in which
-- a device changes hands has a row for each; a node is silent in one six-hour stretch of 500.
-- Where two turns of nobody meet in a bucket, one is kept: a rollup has one row for each holder.
INSERT INTO rollup_5m BY NAME
WITH clipped_turns AS (
    SELECT
        t.*,
        p.device,
        p.gpu,
        p.mig,
        greatest(t.from_at, $day) AS since,
        least(t.to_at, $day + INTERVAL 1 DAY) AS until
    FROM turns AS t
    INNER JOIN parts AS p ON t.node = p.node AND t.slot = p.slot
    WHERE t.from_at < $day + INTERVAL 1 DAY AND t.to_at > $day
),

buckets AS (
    SELECT
        *,
        unnest(
            generate_series(
                time_bucket(INTERVAL 5 MINUTE, since),
                until - INTERVAL 1 MICROSECOND,
                INTERVAL 5 MINUTE
            )
        ) AS bucket
    FROM clipped_turns
),

bucket_activity AS (
    SELECT
        *,
        epoch(least(until, bucket + INTERVAL 5 MINUTE)) - epoch(greatest(since, bucket))
            AS covered_s,
        epoch(bucket)::BIGINT // 21600 AS quarter,
        (hash(node, slot, turn, quarter) % 1000) / 1000.0 AS mood,
        bucket >= from_at + INTERVAL 10 MINUTE AND CASE kind
            WHEN 'train' THEN mood > 0.3 OR hash(node, slot, turn, 'lazy') % 20 > 0
            WHEN 'serve' THEN (hash(node, slot, epoch(bucket)::BIGINT // 300) % 10) > 2
            WHEN 'notebook' THEN mood > 0.6 AND (hash(slot, epoch(bucket)::BIGINT // 300) % 10) > 4
            ELSE false
        END AS busy,
        kind = 'notebook' OR mood < 0.2 AS faint
    FROM buckets
)

SELECT
    'bench' AS cluster,
    bucket,
    device,
    CASE WHEN kind = 'free' THEN '' ELSE 'team-' || (node * 24 + slot) % 40 END AS namespace,
    CASE
        WHEN kind = 'free' THEN ''
        ELSE kind || '-' || node || '-' || slot || '-' || turn || '-0'
    END AS pod,
    'node-' || node AS node,
    CASE WHEN mig THEN gpu END AS parent,
    'nvidia' AS vendor,
    'NVIDIA H100 80GB HBM3' AS model,
    60 AS interval_s,
    greatest(1, covered_s // 60) AS n,
    5 AS expected,
    covered_s,
    CASE WHEN busy THEN 0 ELSE covered_s END AS idle_s,
    CASE WHEN busy AND faint THEN covered_s ELSE 0 END AS low_s,
    CASE WHEN busy AND NOT faint THEN covered_s ELSE 0 END AS busy_s,
    0 AS conflict_s,
    0 AS blind_s,
    n AS act_n,
    CASE WHEN busy THEN 0.1 + 0.6 * mood ELSE 0 END AS act_min,
    CASE WHEN busy THEN 0.1 + 0.7 * mood ELSE 0 END AS act_mean,
    CASE WHEN busy THEN 0.1 + 0.8 * mood ELSE 0 END AS act_max,
    n AS power_w_n,
    CASE WHEN kind = 'free' THEN 70 WHEN busy THEN 300 + 300 * mood ELSE 118 END AS power_w_mean,
    n AS mem_used_bytes_n,
    CASE WHEN kind = 'free' THEN 0 ELSE 40000000000 END AS mem_used_bytes_max
FROM bucket_activity
WHERE hash(node, quarter) % 500 <> 0
QUALIFY
    kind <> 'free'
    OR lag(kind) OVER (PARTITION BY device, bucket ORDER BY since) IS DISTINCT FROM 'free'
ORDER BY device, bucket;

INSERT INTO rollup_1h BY NAME
SELECT
    cluster,
    time_bucket(INTERVAL 1 HOUR, bucket) AS bucket,
    device,
    namespace,
    pod,
    node,
    parent,
    vendor,
    model,
    interval_s,
    sum(n) AS n,
    60 AS expected,
    sum(covered_s) AS covered_s,
    sum(idle_s) AS idle_s,
    sum(low_s) AS low_s,
    sum(busy_s) AS busy_s,
    0 AS conflict_s,
    0 AS blind_s,
    sum(act_n) AS act_n,
    min(act_min) AS act_min,
    sum(act_mean * act_n) / sum(act_n) AS act_mean,
    max(act_max) AS act_max,
    sum(power_w_n) AS power_w_n,
    sum(power_w_mean * power_w_n) / sum(power_w_n) AS power_w_mean,
    sum(mem_used_bytes_n) AS mem_used_bytes_n,
    max(mem_used_bytes_max) AS mem_used_bytes_max
FROM rollup_5m
WHERE bucket >= $day AND bucket < $day + INTERVAL 1 DAY
GROUP BY ALL
ORDER BY device, bucket
