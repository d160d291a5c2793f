-- The accounted hours of the window, and those of them that an analyzer's last run did not judge; 0
-- where no run is stored.
WITH runs AS (
    SELECT
        plugin,
        arg_max(start, ts) AS start,
        arg_max("end", ts) AS "end"
    FROM plugin_run
    WHERE kind = 'analyzer' AND result <> 'failed' AND start IS NOT null
    GROUP BY plugin
),

hours AS (
    SELECT DISTINCT bucket AS hour
    FROM ledger_1h
    WHERE
        bucket >= $since
        AND bucket < $until
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

judged AS (
    SELECT
        h.hour,
        count(*) AS runs,
        count(*) FILTER (WHERE h.hour + INTERVAL 1 HOUR > r.start AND h.hour < r."end") AS judging
    FROM hours AS h
    CROSS JOIN runs AS r
    GROUP BY h.hour
)

SELECT
    count(*) AS hours,
    count(*) FILTER (WHERE judging < runs) AS missed_hours,
    count(*) FILTER (WHERE judging = 0) AS unseen_hours,
    min(hour) FILTER (WHERE judging < runs) AS start,
    max(hour) FILTER (WHERE judging < runs) + INTERVAL 1 HOUR AS "end"
FROM judged
