-- The longest known scrape interval of a cluster's devices.
SELECT max(interval_s) AS interval_s
FROM device
WHERE cluster = $cluster
