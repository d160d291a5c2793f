-- The ledger's dollars equal the bill within one cent: GPU-seconds times the rate of their bucket.
-- Hours that wait to be written again are compared only with $marked: their rates may be newer.
SELECT
    l.cluster,
    sum(l.usd) AS ledger_usd,
    sum((l.gpu_seconds / 3600 * p.loaded_usd_h)::DECIMAL(38, 12)) AS bill_usd
FROM ledger AS l
INNER JOIN device_places AS d
    ON
        l.cluster = d.cluster
        AND l.node IS NOT DISTINCT FROM d.node
        AND l.model IS NOT DISTINCT FROM d.model
INNER JOIN timelines AS s ON d.device_id = s.device_id
LEFT JOIN prices AS p ON s.timeline = p.timeline AND l.bucket = p.bucket
ANTI JOIN unposted AS u
    ON
        date_trunc('hour', l.bucket) = date_trunc('hour', u.bucket)
        AND coalesce(u.cluster, l.cluster) = l.cluster
        AND NOT $marked
WHERE l.bucket >= $since AND l.bucket < $until
GROUP BY ALL
HAVING
    abs(coalesce(ledger_usd, 0) - coalesce(bill_usd, 0)) > 0.01
ORDER BY ALL
