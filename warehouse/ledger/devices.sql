-- Everything that has rows in the ledger, once: name, model and weight. The weight of a GPU's
-- unpartitioned part differs by bucket: `weights` has it; the node by time: `places`.
SELECT
    device_id,
    any_value(cluster) AS cluster,
    any_value(device) AS device,
    any_value(model) AS model,
    any_value(weight) AS weight,
    any_value(kind) AS kind,
    any_value(parent) AS parent
FROM spans
GROUP BY device_id
UNION ALL BY NAME
SELECT
    device_id,
    any_value(cluster) AS cluster,
    any_value(device) AS device,
    any_value(model) AS model,
    1 AS weight,
    'untracked' AS kind,
    null AS parent
FROM untracked
GROUP BY device_id
