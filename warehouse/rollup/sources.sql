-- The longest interval and the model strings of the device samples that a rollup reads.
SELECT
    max(interval_s) AS interval_s,
    list(DISTINCT model) FILTER (model IS NOT NULL) AS models
FROM device_sample
