-- The ledger's seconds in a device's hour equal the seconds in which the device existed. For GPUs
-- that ever had MIG instances, and devices that only the ledger has, the hour is the upper limit.
-- Hours that wait to be written again are compared only with $marked: their devices are newer.
WITH ledger_hours AS (
    SELECT
        cluster,
        device,
        date_trunc('hour', bucket) AS hour_at,
        sum(seconds) AS seconds
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
    GROUP BY ALL
),

hours AS (
    SELECT DISTINCT
        cluster,
        hour_at
    FROM ledger_hours
),

plain AS (
    SELECT d.*
    FROM device AS d
    ANTI JOIN device AS i
        ON d.cluster = i.cluster AND d.device = i.parent
),

expected AS (
    SELECT
        h.cluster,
        d.device,
        h.hour_at,
        epoch(least(d.last_seen, h.hour_at + INTERVAL 1 HOUR))
        - epoch(greatest(d.first_seen, h.hour_at)) AS seconds
    FROM hours AS h
    INNER JOIN plain AS d
        ON
            h.cluster = d.cluster
            AND d.first_seen < h.hour_at + INTERVAL 1 HOUR
            AND h.hour_at < d.last_seen
)

SELECT
    coalesce(p.cluster, e.cluster) AS cluster,
    coalesce(p.device, e.device) AS device,
    coalesce(p.hour_at, e.hour_at) AS hour_at,
    coalesce(p.seconds, 0) AS ledger_s,
    coalesce(e.seconds, 3600) AS capacity_s
FROM ledger_hours AS p
FULL JOIN expected AS e
    ON p.cluster = e.cluster AND p.device = e.device AND p.hour_at = e.hour_at
ANTI JOIN unposted AS u
    ON
        coalesce(p.hour_at, e.hour_at) = date_trunc('hour', u.bucket)
        AND coalesce(p.cluster, e.cluster) = coalesce(u.cluster, p.cluster, e.cluster)
        AND NOT $marked
WHERE
    coalesce(p.seconds, 0) > coalesce(e.seconds, 3600) + 1
    OR coalesce(p.seconds, 0) < coalesce(e.seconds, 0) - 1
ORDER BY ALL
