-- How far the dollars of each hour are from the bill, over all clusters: the audit bill_sum of a
-- longer window cannot differ by more than the sum of its hours.
SELECT
    bucket,
    sum(abs(difference_usd)) AS bill_difference_usd
FROM (
    SELECT
        l.cluster,
        date_trunc('hour', l.bucket) AS bucket,
        coalesce(sum(l.usd), 0)
        - coalesce(sum((l.gpu_seconds / 3600 * p.loaded_usd_h)::DECIMAL(38, 12)), 0)
            AS difference_usd
    FROM ledger AS l
    INNER JOIN device_places AS d
        ON
            l.cluster = d.cluster
            AND l.node IS NOT DISTINCT FROM d.node
            AND l.model IS NOT DISTINCT FROM d.model
    INNER JOIN timelines AS s ON d.device_id = s.device_id
    LEFT JOIN prices AS p ON s.timeline = p.timeline AND l.bucket = p.bucket
    WHERE l.bucket >= $since AND l.bucket < $until
    GROUP BY ALL
) AS cluster_hours
GROUP BY bucket
ORDER BY bucket
