-- Values that collectors refused or clipped on the newest day of each cluster.
WITH dated AS (
    SELECT
        cluster,
        collector,
        ts,
        coalesce(rejected, 0) AS rejected,
        coalesce(clipped, 0) AS clipped,
        coalesce(samples, 0) AS samples,
        max(ts) OVER (PARTITION BY cluster) AS newest_ts
    FROM scrape
    WHERE $cluster IS NULL OR cluster = $cluster
),

counted AS (
    SELECT
        cluster,
        collector,
        sum(rejected)::BIGINT AS refused,
        sum(clipped)::BIGINT AS clipped,
        sum(samples + rejected)::BIGINT AS total
    FROM dated
    WHERE ts >= newest_ts - INTERVAL 1 DAY
    GROUP BY cluster, collector
)

SELECT * FROM counted
WHERE refused + clipped > 0
ORDER BY refused + clipped DESC, cluster ASC, collector ASC
