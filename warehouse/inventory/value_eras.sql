-- From when to when each of several values of a pod or a device (its node) holds: all of time. The
-- first team of a pod is that of all its time before. Null: it is known to have none.
WITH counted AS (
    SELECT
        *,
        count(nullif(value, '')) OVER (
            PARTITION BY cluster, kind, id
            ORDER BY valid_from
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier
    FROM attribute_era
)

SELECT
    cluster,
    kind,
    id,
    nullif(value, '') AS value,
    CASE WHEN earlier = 0 THEN '-infinity'::TIMESTAMP ELSE valid_from END AS holds_from,
    coalesce(lead(valid_from) OVER of_object, 'infinity') AS holds_to
FROM counted
WHERE earlier > 0 OR value <> ''
WINDOW of_object AS (PARTITION BY cluster, kind, id ORDER BY valid_from)
