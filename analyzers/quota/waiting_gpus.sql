-- GPUs that pods without a node requested, as hourly means, by the product that they name.
WITH waits AS (
    SELECT
        p.cluster,
        p.gpu_request,
        coalesce(
            p.annotations ->> '$."fallow.selector"."nvidia.com/gpu.product"[0]', ''
        ) AS product,
        greatest(coalesce(p.created_at, p.first_seen), $since::TIMESTAMP) AS start,
        least(
            coalesce(
                p.scheduled_at,
                p.started_at,
                p.finished_at,
                CASE
                    WHEN p.last_seen >= l.last_list - INTERVAL 10 MINUTE THEN $until::TIMESTAMP
                    ELSE p.last_seen
                END
            ),
            $until::TIMESTAMP
        ) AS "end"
    FROM pod AS p
    INNER JOIN last_lists AS l ON p.cluster = l.cluster
    WHERE p.gpu_request > 0 AND coalesce(p.gpu_resource, '') NOT LIKE '%/mig-%'
),

hours AS (
    SELECT
        *,
        unnest(
            generate_series(date_trunc('hour', start), "end", INTERVAL 1 HOUR)
        ) AS hour
    FROM waits
    WHERE start < "end"
)

SELECT
    cluster,
    hour,
    product,
    sum(
        gpu_request
        * epoch(least("end", hour + INTERVAL 1 HOUR) - greatest(start, hour)) / 3600
    ) AS gpus
FROM hours
GROUP BY ALL
ORDER BY ALL
