-- What prices tell nodes apart by, once per kind of node and GPU model in the window.
SELECT DISTINCT
    s.cluster,
    s.node,
    s.model AS gpu_model,
    coalesce(n.provider, '') AS provider,
    coalesce(n.region, $region) AS region,
    coalesce(n.zone, '') AS zone,
    coalesce(n.instance_type, '') AS instance_type,
    coalesce(n.capacity_type, 'on-demand') AS capacity_type,
    n.gpu_count
FROM spans AS s
LEFT JOIN node AS n ON s.cluster = n.cluster AND s.node = n.node
