-- The idle GPU-hours of the window that the last run of the idle analyzer did not judge.
WITH last_run AS (
    SELECT
        arg_max(start, ts) AS start,
        arg_max("end", ts) AS "end"
    FROM plugin_run
    WHERE kind = 'analyzer' AND plugin = 'idle' AND result <> 'failed' AND start IS NOT null
)

SELECT coalesce(sum(p.gpu_hours), 0) AS gpu_hours
FROM paid AS p
INNER JOIN last_run AS r
    ON coalesce(p.bucket + INTERVAL 1 HOUR <= r.start OR p.bucket >= r."end", true)
WHERE p.state = 'idle'
