-- Stretches of time in which the charged claims on a device sum to more than one device.
WITH edges AS (
    SELECT
        cluster,
        device,
        start_at AS edge_at,
        share AS change
    FROM charged
    UNION ALL
    SELECT
        cluster,
        device,
        end_at,
        -share
    FROM charged
),

changes AS (
    SELECT
        cluster,
        device,
        edge_at,
        sum(change) AS change
    FROM edges
    GROUP BY cluster, device, edge_at
),

loads AS (
    SELECT
        cluster,
        device,
        edge_at AS start_at,
        lead(edge_at) OVER w AS end_at,
        sum(change) OVER w AS claimed
    FROM changes
    WINDOW w AS (PARTITION BY cluster, device ORDER BY edge_at)
)

SELECT * FROM loads
QUALIFY max(claimed) OVER (PARTITION BY cluster, device) > 1 + 1e-9
