-- Devices that worked or idled before a given time, those of them that turned idle or unknown
-- since, targets that were scraped, and those that are down now. A Prometheus names only the nodes
-- that were silent for a while: the others are targets too, and one with samples from after its
-- silence is not down any more.
WITH samples AS (
    SELECT
        cluster,
        device,
        node,
        ts,
        activity
    FROM active_sample
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
    FROM samples
    GROUP BY cluster, device
),

answers AS (
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
        -- Jobs end, and their own exporters end with them.
        AND collector <> 'trainers'
    GROUP BY cluster, collector, target
),

of_prometheus AS (
    SELECT DISTINCT cluster
    FROM answers
    WHERE collector = 'prometheus'
),

nodes AS (
    SELECT
        cluster,
        'prometheus' AS collector,
        node AS target,
        max(ts) AS sampled_at
    FROM samples
    WHERE
        node IS NOT NULL
        AND cluster IN (SELECT cluster FROM of_prometheus)
    GROUP BY cluster, node
),

targets AS (
    SELECT
        coalesce(a.up, TRUE) OR coalesce(n.sampled_at >= a.last_seen, FALSE) AS up,
        greatest(a.last_seen, n.sampled_at) AS last_seen
    FROM answers AS a
    FULL OUTER JOIN nodes AS n
        ON a.cluster = n.cluster AND a.collector = n.collector AND a.target = n.target
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
