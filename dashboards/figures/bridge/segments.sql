-- Priced GPU-hours and dollars of two windows per kind of capacity; between them may be a gap.
SELECT
    cluster,
    pool,
    model,
    coalesce(sum(gpu_hours) FILTER (WHERE bucket < $cut), 0) AS hours_before,
    coalesce(sum(gpu_hours) FILTER (WHERE bucket >= $cut), 0) AS hours_after,
    coalesce(
        sum(gpu_hours) FILTER (
            WHERE bucket < $cut AND state IN ('idle', 'lost', 'free', 'stranded', 'unavailable')
        ), 0
    ) AS waste_before,
    coalesce(
        sum(gpu_hours) FILTER (
            WHERE bucket >= $cut AND state IN ('idle', 'lost', 'free', 'stranded', 'unavailable')
        ), 0
    ) AS waste_after,
    coalesce(sum(usd) FILTER (WHERE bucket < $cut), 0)::DECIMAL(18, 8) AS usd_before,
    coalesce(sum(usd) FILTER (WHERE bucket >= $cut), 0)::DECIMAL(18, 8) AS usd_after
FROM paid
WHERE usd IS NOT null AND (bucket < $before_end OR bucket >= $cut)
GROUP BY ALL
ORDER BY cluster ASC, pool ASC, model ASC
