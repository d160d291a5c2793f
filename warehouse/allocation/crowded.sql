-- Stretches of time in which the charged claims on a device sum to more than one device: what all
-- of them claim, and what those of turn 1 claim.
WITH edges AS (
    SELECT
        cluster,
        device,
        start_at AS edge_at,
        share AS change,
        CASE WHEN turn = 1 THEN share ELSE 0 END AS first_change
    FROM charged
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        end_at AS edge_at,
        -share AS change,
        CASE WHEN turn = 1 THEN -share ELSE 0 END AS first_change
    FROM charged
),

changes AS (
    SELECT
        cluster,
        device,
        edge_at,
        sum(change) AS change,
        sum(first_change) AS first_change
    FROM edges
    GROUP BY cluster, device, edge_at
),

loads AS (
    SELECT
        cluster,
        device,
        edge_at AS start_at,
        lead(edge_at) OVER w AS end_at,
        sum(change) OVER w AS claimed,
        sum(first_change) OVER w AS first_claimed
    FROM changes
    WINDOW w AS (PARTITION BY cluster, device ORDER BY edge_at)
)

SELECT * FROM loads
QUALIFY max(claimed) OVER (PARTITION BY cluster, device) > 1 + 1e-9
