-- What is unknown in the window's hours: no verdict, no price, no owner; and devices without
-- samples.
WITH silent AS (
    SELECT count(*) AS devices
    FROM device
    WHERE
        last_seen < $until::TIMESTAMP - INTERVAL 1 HOUR
        AND last_seen > $until::TIMESTAMP - INTERVAL 1 DAY
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

by_state AS (
    SELECT
        state,
        usd IS null AS unpriced,
        namespace = '(platform)' AS ownerless,
        sum(gpu_hours) AS gpu_hours,
        min(oldest_price_as_of) AS oldest_price,
        max(last_bucket) AS last_hour
    FROM paid
    GROUP BY ALL
)

SELECT
    coalesce(sum(b.gpu_hours), 0) AS gpu_hours,
    coalesce(sum(b.gpu_hours) FILTER (WHERE b.state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(b.gpu_hours) FILTER (WHERE b.unpriced), 0) AS unpriced_gpu_hours,
    coalesce(sum(b.gpu_hours) FILTER (WHERE b.ownerless AND b.state NOT IN (
        'free', 'stranded', 'unavailable', 'unknown'
    )), 0) AS ownerless_gpu_hours,
    min(b.oldest_price) AS oldest_price,
    max(b.last_hour) AS last_hour,
    any_value(silent.devices) AS silent_devices
FROM by_state AS b
CROSS JOIN silent
