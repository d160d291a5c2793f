-- What is unknown in the window's hours: no verdict, no price, no owner; and devices without
-- samples.
WITH silent AS (
    SELECT count(*) AS devices
    FROM device
    WHERE
        last_seen < $until::TIMESTAMP - INTERVAL 1 HOUR
        AND last_seen > $until::TIMESTAMP - INTERVAL 1 DAY
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
)

SELECT
    coalesce(sum(gpu_hours), 0) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'unknown'), 0) AS unknown_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE usd IS null), 0) AS unpriced_gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE namespace = '(platform)' AND state NOT IN (
        'free', 'stranded', 'unavailable', 'unknown'
    )), 0) AS ownerless_gpu_hours,
    min(oldest_price_as_of) AS oldest_price,
    max(last_bucket) AS last_hour,
    any_value(silent.devices) AS silent_devices
FROM paid
CROSS JOIN silent
