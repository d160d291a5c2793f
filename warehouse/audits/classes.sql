-- Every covered second is of exactly one class.
WITH named AS (
    SELECT
        'rollup_5m' AS noun,
        cluster,
        device,
        bucket,
        covered_s,
        idle_s + low_s + busy_s + conflict_s + blind_s AS classes_s
    FROM rollup_5m
    WHERE bucket >= $since AND bucket < $until
    UNION ALL BY NAME
    SELECT
        'rollup_1h' AS noun,
        cluster,
        device,
        bucket,
        covered_s,
        idle_s + low_s + busy_s + conflict_s + blind_s AS classes_s
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until
)

SELECT * FROM named
WHERE abs(classes_s - covered_s) > 0.01 + covered_s * 0.001
ORDER BY ALL
