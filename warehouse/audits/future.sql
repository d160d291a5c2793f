-- No row is later than now plus the tolerance for clocks that are ahead.
SELECT
    'sample' AS noun,
    count(*) AS row_count,
    max(ts) AS latest
FROM sample
WHERE ts > $latest_legal
HAVING count(*) > 0
UNION ALL
SELECT
    'scrape',
    count(*),
    max(ts)
FROM scrape
WHERE ts > $latest_legal
HAVING count(*) > 0
UNION ALL
SELECT
    'rollup_5m',
    count(*),
    max(bucket)
FROM rollup_5m
WHERE bucket > $latest_legal AND n > 0
HAVING count(*) > 0
UNION ALL
SELECT
    'ledger',
    count(*),
    max(bucket)
FROM ledger
WHERE bucket > $latest_legal
HAVING count(*) > 0
ORDER BY ALL
