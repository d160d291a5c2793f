-- Pods that share a device by time slicing, MPS or a vGPU scheduler, as the exporter names them,
-- and the lives in which it did.
WITH named AS (
    SELECT
        h.cluster,
        h.device,
        h.namespace,
        h.pod,
        min(h.ts) AS first_ts,
        max(h.ts)
        + to_milliseconds((1250 * coalesce(any_value(d.interval_s), 60))::BIGINT) AS last_ts,
        avg(h.share) AS share
    FROM holding AS h
    LEFT JOIN device AS d ON h.cluster = d.cluster AND h.device = d.device
    WHERE h.ts >= $since AND h.ts < $until
    GROUP BY h.cluster, h.device, h.namespace, h.pod
),

known AS (
    SELECT
        n.*,
        l.uid,
        coalesce(l.life_start, n.first_ts) AS start_at,
        CASE WHEN l.ended THEN l.life_end ELSE greatest(l.life_end, n.last_ts) END AS end_at
    FROM named AS n
    INNER JOIN lives AS l
        ON n.cluster = l.cluster AND n.namespace = l.namespace AND n.pod = l.pod
    WHERE
        coalesce(l.life_start, n.first_ts) < n.last_ts
        AND (NOT l.ended OR n.first_ts < l.life_end)
)

SELECT * FROM known
UNION ALL
SELECT
    n.*,
    null AS uid,
    n.first_ts AS start_at,
    n.last_ts AS end_at
FROM named AS n
ANTI JOIN known AS k
    ON
        n.cluster = k.cluster AND n.device = k.device
        AND n.namespace = k.namespace AND n.pod = k.pod
