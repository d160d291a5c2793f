-- The finished rows of the requested buckets, with their cluster and with the bucket as a
-- timestamp.
SELECT
    $cluster::VARCHAR AS cluster,
    * REPLACE (make_timestamp(bucket * 300000000) AS bucket) -- noqa: AM04
FROM rolled
WHERE bucket >= epoch_us($first) // 300000000 AND bucket < epoch_us($last) // 300000000
