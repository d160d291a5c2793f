-- Devices that worked or idled before a moment, those of them that turned idle or unknown since,
-- targets that were looked at, and those that are down now.
WITH looks AS (
    SELECT
        cluster,
        device,
        ts,
        list_max([
            gr_engine_active,
            sm_active,
            tensor_active,
            fp64_active,
            fp32_active,
            fp16_active,
            dram_active,
            gpu_util_pct / 100,
            enc_util_pct / 100,
            dec_util_pct / 100,
            mem_copy_util_pct / 100
        ]) AS activity
    FROM sample
    WHERE
        ts >= $before::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
),

devices AS (
    SELECT
        cluster,
        device,
        max(activity) FILTER (WHERE ts < $since::TIMESTAMP) AS earlier,
        max(activity) FILTER (WHERE ts >= $since::TIMESTAMP) AS later
    FROM looks
    GROUP BY cluster, device
),

targets AS (
    SELECT
        cluster,
        collector,
        target,
        arg_max(up, ts) AS up,
        max(coalesce(until, ts)) AS last_seen
    FROM scrape
    WHERE
        ts >= $before::TIMESTAMP
        AND ts < $until::TIMESTAMP
        AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
    GROUP BY cluster, collector, target
)

SELECT
    (
        SELECT count(*)
        FROM devices
        WHERE earlier IS NOT NULL
    ) AS devices,
    (
        SELECT count(*)
        FROM devices
        WHERE
            earlier IS NOT NULL
            AND (later IS NULL OR (earlier > $idle AND later <= $idle))
    ) AS turned,
    (SELECT count(*) FROM targets) AS targets,
    (
        SELECT count(*)
        FROM targets
        WHERE NOT up OR last_seen < $since::TIMESTAMP
    ) AS down
