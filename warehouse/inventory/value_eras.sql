-- From when to when each of several values of a pod (its team) or a device (its node) holds: all of
-- time. Null: it is known to have none.
SELECT
    cluster,
    kind,
    id,
    nullif(value, '') AS value,
    CASE
        WHEN lag(valid_from) OVER of_object IS null THEN '-infinity'::TIMESTAMP
        ELSE valid_from
    END AS holds_from,
    coalesce(lead(valid_from) OVER of_object, 'infinity') AS holds_to
FROM attribute_era
WINDOW of_object AS (PARTITION BY cluster, kind, id ORDER BY valid_from)
