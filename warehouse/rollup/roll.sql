-- The 5-minute rows of the hours to merge, with the bucket as a number.
SELECT * REPLACE (epoch_us(bucket) // 300000000 AS bucket) -- noqa: AM04
FROM rollup_5m
WHERE cluster = $cluster AND bucket >= $first AND bucket < $last
