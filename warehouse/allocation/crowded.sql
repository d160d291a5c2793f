-- Stretches of time in which the charged claims on a device sum to more than the device.
WITH edges AS (
    SELECT
        cluster,
        device,
        start_at AS moment,
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

moments AS (
    SELECT
        cluster,
        device,
        moment,
        sum(change) AS change
    FROM edges
    GROUP BY cluster, device, moment
),

loads AS (
    SELECT
        cluster,
        device,
        moment AS start_at,
        lead(moment) OVER w AS end_at,
        sum(change) OVER w AS claimed
    FROM moments
    WINDOW w AS (PARTITION BY cluster, device ORDER BY moment)
)

SELECT * FROM loads
QUALIFY max(claimed) OVER (PARTITION BY cluster, device) > 1 + 1e-9
