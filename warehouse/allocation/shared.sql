-- Pods that share a device by time slicing, MPS or a vGPU scheduler, as the exporter names them,
-- with the lifetimes in which they shared it.
WITH in_inventory AS (
    SELECT
        n.cluster,
        n.device,
        n.namespace,
        n.pod,
        n.share,
        n.alone,
        l.uid,
        coalesce(l.life_start, n.first_ts) AS start_at,
        CASE WHEN l.ended THEN l.life_end ELSE greatest(l.life_end, n.last_ts) END AS end_at
    FROM sharers AS n
    INNER JOIN lives AS l
        ON n.cluster = l.cluster AND n.namespace = l.namespace AND n.pod = l.pod
    WHERE
        coalesce(l.life_start, n.first_ts) < n.last_ts
        AND (NOT l.ended OR n.first_ts < l.life_end)
)

SELECT
    cluster,
    device,
    namespace,
    pod,
    share,
    alone,
    uid,
    start_at,
    end_at
FROM in_inventory
UNION ALL
SELECT
    n.cluster,
    n.device,
    n.namespace,
    n.pod,
    n.share,
    n.alone,
    null,
    n.first_ts,
    n.last_ts
FROM sharers AS n
ANTI JOIN in_inventory AS k
    ON
        n.cluster = k.cluster AND n.device = k.device
        AND n.namespace = k.namespace AND n.pod = k.pod
