-- The columns by which prices distinguish nodes, per device and era of its node. Devices that every
-- price must treat alike have the same `kind`.
SELECT
    d.device_id,
    greatest(coalesce(n.holds_from, $since), d.holds_from, $since) AS from_at,
    least(coalesce(n.holds_to, $until), d.holds_to, $until) AS to_at,
    d.cluster,
    d.model AS gpu_model,
    coalesce(n.provider, '') AS provider,
    coalesce(n.region, $region) AS region,
    coalesce(n.zone, '') AS zone,
    coalesce(n.instance_type, '') AS instance_type,
    coalesce(n.capacity_type, 'on-demand') AS capacity_type,
    n.gpu_count,
    dense_rank() OVER (
        ORDER BY
            d.cluster,
            d.model,
            n.provider,
            n.region,
            n.zone,
            n.instance_type,
            n.capacity_type,
            n.gpu_count
    ) AS kind
FROM device_places AS d
LEFT JOIN node_eras AS n
    ON
        d.cluster = n.cluster AND d.node = n.node
        AND d.holds_to > n.holds_from AND d.holds_from < n.holds_to
WHERE d.holds_from < $until AND d.holds_to > $since
