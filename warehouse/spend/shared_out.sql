-- With $share_unallocated, each cluster's unallocated dollars go to its owners in proportion to
-- their dollars; the largest owner also gets the rounding remainder. `own_usd` is before that.
-- GPU-hours do not move.
WITH bills AS (
    SELECT
        bill,
        sum(usd) FILTER (WHERE NOT owned) AS unowned_usd,
        sum(usd) FILTER (WHERE owned) AS owned_usd
    FROM grouped
    GROUP BY bill
),

portions AS (
    SELECT
        g.*,
        $share_unallocated
        AND coalesce(b.owned_usd, 0) > 0
        AND coalesce(b.unowned_usd, 0) > 0 AS spread,
        b.unowned_usd,
        CASE
            WHEN g.owned
                THEN (b.unowned_usd::DOUBLE * g.usd::DOUBLE / b.owned_usd::DOUBLE)::DECIMAL(18, 8)
        END AS portion,
        row_number() OVER (
            PARTITION BY g.bill, g.owned
            ORDER BY
                g.usd DESC NULLS LAST,
                g.namespace ASC,
                g.team ASC,
                g.workload ASC,
                g.model ASC,
                g.pool ASC,
                g.node ASC,
                g.state ASC
        ) = 1 AS largest
    FROM grouped AS g
    INNER JOIN bills AS b ON g.bill = b.bill
),

remainders AS (
    SELECT
        *,
        unowned_usd - sum(portion) OVER (PARTITION BY bill) AS rest
    FROM portions
)

SELECT
    bill,
    owned,
    cluster,
    namespace,
    team,
    workload,
    model,
    pool,
    node,
    state,
    gpu_hours,
    CASE
        WHEN NOT spread THEN usd
        WHEN NOT owned THEN usd * 0
        ELSE usd + portion + CASE WHEN largest THEN rest ELSE 0 END
    END AS usd,
    usd AS own_usd,
    idle_gpu_hours,
    idle_usd,
    unknown_gpu_hours,
    unpriced_gpu_hours,
    estimated_gpu_hours,
    estimated_usd,
    known_gpu_hours,
    busy_gpu_hours,
    effective_gpu_hours,
    measured_gpu_hours,
    price_as_of
FROM remainders
