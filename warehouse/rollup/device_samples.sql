-- The looks a rollup reads: time as a number, as the reductions want it.
SELECT
    * EXCLUDE (ts), -- noqa: AM04
    epoch_us(ts) AS at_us
FROM sample
WHERE cluster = $cluster AND ts >= $since AND ts < $until
