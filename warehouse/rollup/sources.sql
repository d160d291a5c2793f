-- What a stretch of looks is made of: the longest interval and the model strings.
SELECT
    greatest(
        max(interval_s),
        (
            SELECT max(d.interval_s) FROM device AS d
            WHERE d.cluster = $cluster
        )
    ) AS interval_s,
    list(DISTINCT model) FILTER (model IS NOT NULL) AS models
FROM sample
WHERE cluster = $cluster AND ts >= $first AND ts < $last
