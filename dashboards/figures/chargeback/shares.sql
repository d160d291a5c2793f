-- The unallocated cost goes to each cluster's teams in proportion to their dollars, as in `fallow
-- spend --share-unallocated`: the largest team also gets the rounding remainder; rows sum to the
-- bill.
WITH bills AS (
    SELECT
        cluster,
        sum(usd_loaded) FILTER (WHERE NOT owned) AS nobodys,
        sum(usd_loaded) FILTER (WHERE owned) AS somebodys,
        sum(usd_gpu) FILTER (WHERE NOT owned) AS nobodys_gpu,
        sum(usd_gpu) FILTER (WHERE owned) AS somebodys_gpu
    FROM owned
    GROUP BY cluster
),

portions AS (
    SELECT
        o.*,
        b.nobodys,
        b.nobodys_gpu,
        coalesce(b.somebodys, 0) > 0 AND coalesce(b.nobodys, 0) > 0 AS spread,
        coalesce(b.somebodys_gpu, 0) > 0 AND coalesce(b.nobodys_gpu, 0) > 0 AS spread_gpu,
        CASE
            WHEN o.owned
                THEN
                    (b.nobodys::DOUBLE * o.usd_loaded::DOUBLE / b.somebodys::DOUBLE)::DECIMAL(18, 8)
        END AS portion,
        CASE
            WHEN o.owned
                THEN
                    (
                        b.nobodys_gpu::DOUBLE * o.usd_gpu::DOUBLE / b.somebodys_gpu::DOUBLE
                    )::DECIMAL(18, 8)
        END AS portion_gpu,
        row_number() OVER (
            PARTITION BY o.cluster, o.owned ORDER BY o.usd_loaded DESC NULLS LAST, o.team ASC
        ) = 1 AS largest,
        row_number() OVER (
            PARTITION BY o.cluster, o.owned ORDER BY o.usd_gpu DESC NULLS LAST, o.team ASC
        ) = 1 AS largest_gpu
    FROM owned AS o
    INNER JOIN bills AS b ON o.cluster = b.cluster
),

remainders AS (
    SELECT
        *,
        nobodys - sum(portion) OVER (PARTITION BY cluster) AS rest,
        nobodys_gpu - sum(portion_gpu) OVER (PARTITION BY cluster) AS rest_gpu
    FROM portions
)

SELECT
    cluster,
    team,
    owned,
    gpu_hours,
    used_gpu_hours,
    idle_gpu_hours,
    unpriced_gpu_hours,
    known_gpu_hours,
    busy_gpu_hours,
    measured_gpu_hours,
    effective_gpu_hours,
    usd_gpu,
    usd_loaded,
    idle_usd,
    CASE
        WHEN NOT spread THEN usd_loaded * 0
        WHEN NOT owned THEN -usd_loaded
        ELSE portion + CASE WHEN largest THEN rest ELSE 0 END
    END AS shared_usd,
    CASE
        WHEN NOT spread_gpu THEN usd_gpu * 0
        WHEN NOT owned THEN -usd_gpu
        ELSE portion_gpu + CASE WHEN largest_gpu THEN rest_gpu ELSE 0 END
    END AS shared_usd_gpu
FROM remainders
