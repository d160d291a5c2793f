-- The clusters whose disruption budgets were polled lately, though there may be none; `up`:
-- whether the last poll read them all.
SELECT
    cluster,
    arg_max(up AND coalesce(rejected, 0) = 0, ts) AS up
FROM scrape
WHERE
    ts >= $since
    AND ts < $until
    AND collector = 'kubernetes'
    AND ends_with(target, '/poddisruptionbudgets')
GROUP BY cluster
