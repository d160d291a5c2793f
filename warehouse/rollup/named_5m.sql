-- The finished rows of the wanted buckets, their bucket a moment again.
SELECT * REPLACE (make_timestamp(bucket * 300000000) AS bucket)
FROM rolled
WHERE bucket >= epoch_us($start) // 300000000 AND bucket < epoch_us($end) // 300000000
