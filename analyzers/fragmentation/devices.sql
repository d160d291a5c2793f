-- What of each device somebody held at each moment; a GPU in MIG mode is its instances.
WITH moments AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($nths) AS nth,
        unnest($moments) AS moment
)

SELECT
    m.nth,
    d.cluster,
    d.node,
    d.device,
    d.parent,
    any_value(d.profile) AS profile,
    any_value(coalesce(d.gpu_model, d.model, '')) AS model,
    coalesce(sum(a.share), 0) AS held
FROM moments AS m
INNER JOIN device AS d
    ON m.cluster = d.cluster AND m.moment >= d.first_seen AND m.moment < d.last_seen
LEFT JOIN allocation AS a
    ON
        d.cluster = a.cluster AND d.device = a.device
        AND m.moment >= a.start AND m.moment < a."end"
WHERE d.node IS NOT null
GROUP BY m.nth, d.cluster, d.node, d.device, d.parent
ORDER BY d.cluster, d.node, d.device, m.nth
