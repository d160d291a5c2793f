-- The longest interval of a cluster's devices, as far as they are known.
SELECT max(interval_s) AS interval_s
FROM device
WHERE cluster = $cluster
