-- Hours that were outside the lifetime of a device and now are in it: between the device's samples
-- of before and the incoming ones, which may have several rows of a device.
WITH lifetimes AS (
    SELECT
        cluster,
        device,
        first_seen,
        last_seen
    FROM incoming
    UNION ALL BY NAME
    SELECT
        d.cluster,
        d.device,
        d.first_seen,
        d.last_seen
    FROM device AS d
    SEMI JOIN incoming AS i ON d.cluster = i.cluster AND d.device = i.device
),

ordered AS (
    SELECT
        first_seen,
        max(last_seen) OVER (
            PARTITION BY cluster, device
            ORDER BY first_seen, last_seen
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS seen_until
    FROM lifetimes
)

SELECT DISTINCT
    date_trunc('hour', seen_until) AS start,
    date_trunc('hour', first_seen - INTERVAL 1 MICROSECOND) + INTERVAL 1 HOUR AS until
FROM ordered
WHERE first_seen > seen_until
ORDER BY ALL
