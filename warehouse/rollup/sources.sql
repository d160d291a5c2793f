-- What the looks are made of: the longest interval and the model strings.
SELECT
    max(interval_s) AS interval_s,
    list(DISTINCT model) FILTER (model IS NOT NULL) AS models
FROM device_sample
