-- The five minutes of a month whose samples are kept: they are rolled up again.
INSERT INTO dirty BY NAME
SELECT DISTINCT
    cluster,
    time_bucket(INTERVAL 5 MINUTE, ts) AS bucket
FROM sample
WHERE ts >= $since AND ts < $until
EXCEPT
SELECT
    cluster,
    bucket
FROM dirty
