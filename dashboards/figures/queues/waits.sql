-- How long pods waited that were scheduled in the window, and which still wait, by name.
WITH keyed AS (
    SELECT
        CASE $by
            WHEN 'team' THEN team
            WHEN 'queue' THEN queue
            WHEN 'priority' THEN priority
            WHEN 'size' THEN format('{:g} GPUs', gpus)
        END AS name,
        gpus,
        waited_until IS null OR waited_until >= $until AS is_waiting,
        placed_at >= $since AND placed_at < $until AS is_placed,
        epoch(placed_at - created_at) AS waited_s,
        greatest(
            0,
            epoch(least(coalesce(waited_until, $until::TIMESTAMP), $until::TIMESTAMP))
            - epoch(greatest(created_at, $since::TIMESTAMP))
        ) * gpus / 3600 AS gpu_hours
    FROM gpu_requests
    WHERE waited_until IS null OR waited_until >= $since
)

SELECT
    name,
    count(*) FILTER (WHERE is_placed) AS placed,
    count(*) FILTER (WHERE is_waiting) AS waiting,
    sum(gpu_hours) AS gpu_hours,
    quantile_cont(waited_s, 0.5) FILTER (WHERE is_placed) / 60 AS p50_minutes,
    quantile_cont(waited_s, 0.95) FILTER (WHERE is_placed) / 60 AS p95_minutes,
    max(waited_s) FILTER (WHERE is_placed) / 60 AS longest_minutes
FROM keyed
WHERE is_placed OR is_waiting OR gpu_hours > 0
GROUP BY name
ORDER BY gpu_hours DESC, placed DESC, name ASC
LIMIT $most
