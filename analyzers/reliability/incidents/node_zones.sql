-- The zone of each node, or its pool where no zone is known.
SELECT
    cluster,
    node,
    coalesce(zone, pool, '') AS zone
FROM node
WHERE gpu_count > 0
ORDER BY ALL
