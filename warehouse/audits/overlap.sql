-- No two exact whole-device allocations of one device overlap, and no pod's overlap with its own.
WITH exact AS (
    SELECT
        cluster,
        device,
        pod_uid,
        start,
        "end" AS until_at,
        CASE WHEN share >= 1 THEN '' ELSE pod_uid END AS holder
    FROM allocation
    WHERE attribution = 'exact' AND start < $until AND "end" > $since
),

ordered AS (
    SELECT
        *,
        max(until_at) OVER (
            PARTITION BY cluster, device, holder
            ORDER BY start, until_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS held_until
    FROM exact
)

SELECT
    cluster,
    device,
    pod_uid,
    start,
    held_until
FROM ordered
WHERE held_until > start
ORDER BY ALL
