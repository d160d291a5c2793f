-- The allocated share of each device at each time; a GPU in MIG mode is its instances.
WITH times AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($nths) AS nth,
        unnest($times) AS at
)

SELECT
    m.nth,
    d.cluster,
    d.node,
    d.device,
    d.parent,
    any_value(d.profile) AS profile,
    any_value(coalesce(d.gpu_model, d.model, '')) AS model,
    coalesce(sum(a.share), 0) AS allocated
FROM times AS m
INNER JOIN device AS d
    ON m.cluster = d.cluster AND m.at >= d.first_seen AND m.at < d.last_seen
LEFT JOIN allocation AS a
    ON
        d.cluster = a.cluster AND d.device = a.device
        AND m.at >= a.start AND m.at < a."end"
WHERE d.node IS NOT null
GROUP BY m.nth, d.cluster, d.node, d.device, d.parent
ORDER BY d.cluster, d.node, d.device, m.nth
