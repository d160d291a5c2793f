-- Looks never speak for more than their bucket has, nor for less than nothing.
WITH spoken AS (
    SELECT
        'rollup_5m' AS noun,
        300 AS size_s,
        cluster,
        device,
        bucket,
        sum(covered_s) AS covered_s,
        min(covered_s) AS least_s
    FROM rollup_5m
    WHERE bucket >= $since AND bucket < $until
    GROUP BY ALL
    UNION ALL
    SELECT
        'rollup_1h',
        3600,
        cluster,
        device,
        bucket,
        sum(covered_s),
        min(covered_s)
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until
    GROUP BY ALL
)

SELECT * FROM spoken
WHERE covered_s > size_s * 1.001 OR least_s < 0
ORDER BY ALL
