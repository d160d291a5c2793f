-- The finished hours, with the bucket as a timestamp again.
SELECT * REPLACE (make_timestamp(bucket * 3600000000) AS bucket) -- noqa: AM04
FROM rolled
