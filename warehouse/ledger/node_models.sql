-- The GPU model that telemetry names for each node and era; the newest device's.
SELECT
    n.cluster,
    n.node,
    n.holds_from,
    n.holds_to,
    arg_max(d.gpu_model, d.last_seen) AS gpu_model
FROM node_eras AS n
INNER JOIN device AS d
    ON
        n.cluster = d.cluster AND n.node = d.node
        AND n.to_at > d.first_seen AND n.from_at < d.last_seen
WHERE d.gpu_model IS NOT null
GROUP BY ALL
