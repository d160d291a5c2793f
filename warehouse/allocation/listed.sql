-- Devices that a DRA claim, a HAMi annotation or an imported placement assigns to a pod. An element
-- is a UUID, or an object with `device` (or `uuid`) and an optional `share`.
WITH elements AS (
    SELECT
        cluster,
        uid,
        unnest(json_extract(devices, '$[*]')) AS element
    FROM lives
    WHERE json_valid(devices)
)

SELECT
    cluster,
    uid,
    coalesce(element ->> '$.device', element ->> '$.uuid', element ->> '$') AS device,
    max(try_cast(element ->> '$.share' AS DOUBLE)) AS share
FROM elements
GROUP BY ALL
