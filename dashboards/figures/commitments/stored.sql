-- The commitments that are stored as prices, and from when to when each price holds.
SELECT
    substr(source, 1 + length('commitment ')) AS name,
    provider,
    instance_type,
    nodes,
    gpu_count AS gpus_per_node,
    node_usd_h AS usd_per_node_hour,
    valid_from AS start,
    coalesce(valid_to, valid_from) AS "end",
    region,
    gpu_model
FROM rate
WHERE nodes > 0 AND gpu_count > 0 AND starts_with(source, 'commitment ')
ORDER BY valid_from ASC, source ASC, region ASC
