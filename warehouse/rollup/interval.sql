-- The longest known scrape interval of a cluster's devices. The lake would search the files by the
-- cluster, and nearly every file has it.
SELECT max(interval_s) FILTER (cluster = $cluster) AS interval_s
FROM device
