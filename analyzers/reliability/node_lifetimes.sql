-- Nodes with GPUs and the hours for which they existed.
SELECT
    cluster,
    node,
    coalesce(pool, instance_type, gpu_model, 'unknown') AS pool,
    gpu_count,
    (
        epoch(least(last_seen, $until))
        - epoch(greatest(coalesce(first_seen, $since), $since))
    ) / 3600 AS hours
FROM node
WHERE gpu_count > 0 AND last_seen > $since AND coalesce(first_seen, $since) < $until
ORDER BY cluster, node
