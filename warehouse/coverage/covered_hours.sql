-- How many seconds of each hour are accounted: of the first and the newest hour the longest time of
-- any device, of others all.
WITH hours AS (
    SELECT DISTINCT bucket AS hour
    FROM ledger_1h
    WHERE
        bucket >= $since AND bucket < $until
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

edges AS (
    SELECT unnest([min(hour), max(hour)]) AS hour
    FROM hours
),

devices AS (
    SELECT
        date_trunc('hour', bucket) AS hour,
        sum(seconds) AS seconds
    FROM ledger
    WHERE
        bucket >= $since AND bucket < $until
        AND date_trunc('hour', bucket) IN (SELECT e.hour FROM edges AS e)
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    GROUP BY cluster, device, date_trunc('hour', bucket)
),

longest AS (
    SELECT
        hour,
        max(seconds) AS seconds
    FROM devices
    GROUP BY hour
)

SELECT
    h.hour,
    least(3600, coalesce(l.seconds, 3600)) AS covered_s
FROM hours AS h
LEFT JOIN longest AS l ON h.hour = l.hour
