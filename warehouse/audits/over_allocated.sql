-- At no moment is more of a device allocated than there is of it.
WITH turns AS (
    SELECT
        cluster,
        device,
        start AS at_moment,
        share
    FROM allocation
    WHERE start < $until AND "end" > $since AND start < "end"
    UNION ALL
    SELECT
        cluster,
        device,
        "end",
        -share
    FROM allocation
    WHERE start < $until AND "end" > $since AND start < "end"
),

moments AS (
    SELECT
        cluster,
        device,
        at_moment,
        sum(share) AS change
    FROM turns
    GROUP BY ALL
),

held AS (
    SELECT
        cluster,
        device,
        at_moment,
        sum(change) OVER (PARTITION BY cluster, device ORDER BY at_moment) AS allocated
    FROM moments
)

SELECT * FROM held
WHERE allocated > 1.000001
ORDER BY ALL
