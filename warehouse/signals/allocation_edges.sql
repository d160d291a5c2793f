-- When the pods on a device change: `number` counts these changes, and `allocated` holds until the
-- next one. That a pod is of another team is none.
WITH both_ends AS (
    SELECT
        cluster,
        device,
        (pod_uid, share, attribution, rule) AS claim,
        unnest([start, "end"]) AS edge_at,
        unnest([1, -1]) AS step
    FROM allocation
    WHERE
        start < $until AND "end" > $since
        AND device >= $first_device AND device < $last_device
),

claim_edges AS (
    SELECT
        cluster,
        device,
        edge_at,
        sum(step) AS step
    FROM both_ends
    GROUP BY cluster, device, claim, edge_at
    HAVING sum(step) <> 0
),

edge_sums AS (
    SELECT
        cluster,
        device,
        edge_at,
        sum(step) AS step
    FROM claim_edges
    GROUP BY cluster, device, edge_at
)

SELECT
    cluster,
    device,
    epoch_us(edge_at) AS edge_us,
    row_number() OVER (PARTITION BY cluster, device ORDER BY edge_at) AS number,
    sum(step) OVER (PARTITION BY cluster, device ORDER BY edge_at) > 0 AS allocated
FROM edge_sums
ORDER BY cluster, device, edge_us
