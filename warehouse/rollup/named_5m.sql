-- The finished rows of the wanted buckets: their cluster, and their bucket a moment again.
SELECT
    $cluster::VARCHAR AS cluster,
    * REPLACE (make_timestamp(bucket * 300000000) AS bucket) -- noqa: AM04
FROM rolled
WHERE bucket >= epoch_us($first) // 300000000 AND bucket < epoch_us($last) // 300000000
