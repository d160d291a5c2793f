-- The GPU model that telemetry names for each node; the newest device's.
SELECT
    cluster,
    node,
    arg_max(gpu_model, last_seen) AS gpu_model
FROM device
WHERE node IS NOT null AND gpu_model IS NOT null
GROUP BY cluster, node
