-- The maxima of every device's series in every window that ends at a check. A series is identified
-- by its labels: a device of one container. Where pods share a device, each pod has a copy.
WITH named AS (
    SELECT
        ts,
        device,
        node,
        gpu_index,
        namespace,
        pod,
        container,
        gr_engine_active,
        gpu_util_pct
    FROM sample
    WHERE ts >= $since AND ts < $until AND pod IS NOT null
    UNION ALL BY NAME
    SELECT
        s.ts,
        s.device,
        s.node,
        s.gpu_index,
        h.namespace,
        h.pod,
        h.container,
        s.gr_engine_active,
        s.gpu_util_pct
    FROM holding AS h
    INNER JOIN sample AS s ON h.cluster = s.cluster AND h.ts = s.ts AND h.device = s.device
    WHERE s.ts >= $since AND s.ts < $until AND s.pod IS null
),

checked AS (
    SELECT
        device,
        node,
        gpu_index,
        namespace,
        pod,
        container,
        ceil(epoch(ts) / $every_s)::BIGINT AS step,
        max(gr_engine_active) AS gr,
        max(gpu_util_pct) AS util
    FROM named
    WHERE node NOT IN (SELECT unnest($blind))
    GROUP BY ALL
)

SELECT
    c.device,
    c.node,
    c.gpu_index,
    c.namespace,
    c.pod,
    c.container,
    c.step + w.later AS step,
    max(c.gr) AS gr,
    max(c.util) AS util
FROM checked AS c, range(($window_s // $every_s)::BIGINT) AS w (later)
GROUP BY ALL
