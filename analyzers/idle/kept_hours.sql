-- The whole hours of the window whose rows are kept, as these settings shape them.
SELECT epoch_us(bucket) AS hour_us
FROM idle_hour
WHERE bucket >= $since AND bucket + INTERVAL 1 HOUR <= $until AND shape = $shape
ORDER BY hour_us
