-- Devices without the ledger's untracked ones.
SELECT
    device_id,
    any_value(cluster) AS cluster,
    any_value(node) AS node,
    any_value(model) AS model
FROM spans
GROUP BY device_id
