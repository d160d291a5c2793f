-- The hours of a month that the ledger has: they are written again.
INSERT INTO unposted BY NAME
SELECT DISTINCT time_bucket(INTERVAL 1 HOUR, bucket) AS bucket
FROM ledger
WHERE bucket >= $since AND bucket < $until
EXCEPT
SELECT bucket FROM unposted
