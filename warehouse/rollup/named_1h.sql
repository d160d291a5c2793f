-- The finished hours, their bucket a moment again.
SELECT * REPLACE (make_timestamp(bucket * 3600000000) AS bucket) -- noqa: AM04
FROM rolled
