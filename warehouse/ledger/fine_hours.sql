-- Device-hours that five-minute looks tell of; elsewhere the hour is the finest there is.
SELECT DISTINCT
    device_id,
    time_bucket(INTERVAL 1 HOUR, bucket) AS hour_at
FROM fine
WHERE bucket >= $since AND $step_s = 3600
