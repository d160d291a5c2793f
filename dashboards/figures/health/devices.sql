-- The devices that match the filters: hourly telemetry has no pool and no team. Without a filter of
-- an owner or a pool the inventory has them: a month of the ledger has a thousand rows per device.
SELECT
    cluster,
    device,
    coalesce(node, '(unknown)') AS node,
    coalesce(gpu_model, model, '(unknown)') AS model
FROM device
WHERE
    coalesce($team::VARCHAR, $namespace::VARCHAR, $pool::VARCHAR) IS null
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND ($model::VARCHAR IS null OR coalesce(gpu_model, model, '(unknown)') = $model)
UNION ALL BY NAME
SELECT DISTINCT
    cluster,
    device,
    node,
    model
FROM paid
WHERE coalesce($team::VARCHAR, $namespace::VARCHAR, $pool::VARCHAR) IS NOT null
