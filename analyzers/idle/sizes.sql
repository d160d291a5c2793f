-- How many looks the window has, and how many the rollups say it had.
SELECT
    (
        SELECT count(*) FROM sample
        WHERE ts >= $since AND ts < $until
    ) AS looks,
    (
        SELECT coalesce(sum(n), 0) FROM rollup_5m
        WHERE bucket >= $since AND bucket < $until
    ) AS rolled
