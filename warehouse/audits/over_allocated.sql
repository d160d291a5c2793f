-- At no time does the allocation of a device exceed the device.
WITH turns AS (
    SELECT
        cluster,
        device,
        start AS at_time,
        share
    FROM allocation
    WHERE start < $until AND "end" > $since AND start < "end"
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        "end" AS at_time,
        -share AS share
    FROM allocation
    WHERE start < $until AND "end" > $since AND start < "end"
),

changes AS (
    SELECT
        cluster,
        device,
        at_time,
        sum(share) AS change
    FROM turns
    GROUP BY ALL
),

loads AS (
    SELECT
        cluster,
        device,
        at_time,
        sum(change) OVER (PARTITION BY cluster, device ORDER BY at_time) AS allocated
    FROM changes
)

SELECT * FROM loads
WHERE allocated > 1.000001
ORDER BY ALL
