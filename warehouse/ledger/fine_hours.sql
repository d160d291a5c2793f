-- Device-hours that five-minute looks tell of; elsewhere the hour is the finest there is.
SELECT DISTINCT
    d.device_id,
    f.cluster,
    f.device,
    time_bucket(INTERVAL 1 HOUR, f.bucket) AS hour_at
FROM fine AS f
INNER JOIN spans AS d ON f.cluster = d.cluster AND f.device = d.device
WHERE f.bucket >= $since AND $step_s = 3600
