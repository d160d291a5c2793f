-- Every device that somebody held in the window, with what is known of it.
SELECT
    h.cluster,
    h.device,
    d.node,
    d.parent,
    d.model,
    d.interval_s,
    coalesce(d.weight, 1.0) AS weight
FROM (
    SELECT DISTINCT
        cluster,
        device
    FROM allocation
    WHERE start < $until AND "end" > $since
) AS h
LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
ORDER BY h.cluster, h.device
