-- No row is later than now plus the tolerance for clocks that are ahead.
SELECT
    'sample' AS noun,
    count(*) AS row_count,
    max(ts) AS latest
FROM sample
WHERE ts > $latest_legal
HAVING count(*) > 0
UNION ALL BY NAME
SELECT
    'scrape' AS noun,
    count(*) AS row_count,
    max(ts) AS latest
FROM scrape
WHERE ts > $latest_legal
HAVING count(*) > 0
UNION ALL BY NAME
SELECT
    'rollup_5m' AS noun,
    count(*) AS row_count,
    max(bucket) AS latest
FROM rollup_5m
WHERE bucket > $latest_legal AND n > 0
HAVING count(*) > 0
UNION ALL BY NAME
SELECT
    'ledger' AS noun,
    count(*) AS row_count,
    max(bucket) AS latest
FROM ledger
WHERE bucket > $latest_legal
HAVING count(*) > 0
ORDER BY ALL
