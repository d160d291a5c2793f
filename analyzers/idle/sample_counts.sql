-- How many samples the window has, how many its rollups were computed from, and the time whose
-- states the accounting step has written.
SELECT
    (
        SELECT count(*) FROM sample
        WHERE ts >= $since AND ts < $until
    ) AS samples,
    (
        SELECT coalesce(sum(n), 0)::BIGINT FROM rollup_5m
        WHERE bucket >= $since AND bucket < $until
    ) AS rolled,
    (
        SELECT epoch_us(min(bucket)) FROM signal
        WHERE bucket >= time_bucket(INTERVAL 5 MINUTE, $since::TIMESTAMP) AND bucket < $until
    ) AS accounted_from,
    (
        SELECT epoch_us(max(bucket) + INTERVAL 5 MINUTE) FROM signal
        WHERE bucket >= time_bucket(INTERVAL 5 MINUTE, $since::TIMESTAMP) AND bucket < $until
    ) AS accounted_until
