-- How many hours of the window have data, per cluster and (cluster null) of every cluster but those
-- that are late (unless all are). An hour in which every device is unknown has no data.
WITH cluster_hours AS (
    SELECT DISTINCT
        cluster,
        bucket
    FROM ledger_1h
    WHERE
        bucket >= $since AND bucket < $until
        AND state <> 'unknown'
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

timely AS (
    SELECT
        cluster,
        bucket
    FROM cluster_hours
    WHERE
        NOT list_contains($late, cluster)
        OR (SELECT bool_and(list_contains($late, h.cluster)) FROM cluster_hours AS h)
),

whole_hours AS (
    SELECT bucket
    FROM timely
    GROUP BY bucket
    HAVING count(*) = (SELECT count(DISTINCT t.cluster) FROM timely AS t)
)

SELECT
    null AS cluster,
    count(*) AS hours
FROM whole_hours
UNION ALL BY NAME
SELECT
    cluster,
    count(*) AS hours
FROM cluster_hours
GROUP BY cluster
ORDER BY cluster ASC NULLS FIRST
