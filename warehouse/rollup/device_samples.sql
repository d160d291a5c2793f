-- The device samples that a rollup reads, with the time as a number, as `classified.sql`
-- requires.
SELECT
    * EXCLUDE (ts), -- noqa: AM04
    epoch_us(ts) AS at_us
FROM sample
WHERE cluster = $cluster AND ts >= $since AND ts < $until
