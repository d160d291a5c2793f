-- Device-hours that have five-minute signals; elsewhere the hour is the finest step.
SELECT DISTINCT
    device_id,
    time_bucket(INTERVAL 1 HOUR, bucket) AS hour_at
FROM fine
WHERE bucket >= $since AND $step_s = 3600
