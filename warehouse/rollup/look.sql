-- The looks a rollup reads: time as a number, as the reductions want it.
SELECT
    * EXCLUDE (ts),
    epoch_us(ts) AS "at"
FROM sample
WHERE "cluster" = $cluster AND ts >= $since AND ts < $until
