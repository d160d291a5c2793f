-- The location of nodes with GPUs, and their number of whole GPUs by model in telemetry.
SELECT
    d.cluster,
    d.node,
    d.gpu_model AS model,
    any_value(n.pool) AS pool,
    any_value(n.zone) AS zone,
    any_value(n.labels) AS labels,
    count(*) AS gpus
FROM device AS d
LEFT JOIN node AS n ON d.cluster = n.cluster AND d.node = n.node
WHERE d.parent IS null AND d.node IS NOT null
GROUP BY d.cluster, d.node, d.gpu_model
ORDER BY d.cluster, d.node, d.gpu_model
