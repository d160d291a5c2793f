-- Whether a cluster's history is read, and from when on it has samples; $cluster.
WITH marks AS (
    SELECT count(*) > 0 AS is_read
    FROM cursor
    WHERE starts_with(source, 'history of cluster ' || $cluster || ' since ')
),

hours AS (
    SELECT min(bucket) AS first
    FROM rollup_1h
    WHERE cluster = $cluster
)

SELECT
    hours.first,
    marks.is_read
FROM hours
CROSS JOIN marks
