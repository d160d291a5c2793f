-- Samples of shared devices on which a pod is still named after it ended. Exporters keep its series
-- for some minutes (telemetry-and-waste.md#telemetry-faults), so the next pod seems to share the
-- device. `there` = the pod had not ended yet. `alone` = all other pods in the sample had ended.
WITH devices AS (
    SELECT DISTINCT
        h.cluster,
        h.device
    FROM (
        SELECT
            cluster,
            device,
            namespace,
            pod,
            max(ts) AS last_ts
        FROM holding
        WHERE ts >= $since AND ts < $until
        GROUP BY ALL
    ) AS h
    INNER JOIN lives AS l
        ON h.cluster = l.cluster AND h.namespace = l.namespace AND h.pod = l.pod
    WHERE l.ended AND l.life_end < h.last_ts
),

samples AS (
    SELECT
        h.cluster,
        h.device,
        h.ts,
        h.namespace,
        h.pod,
        any_value(h.share) AS share,
        NOT coalesce(bool_or(l.ended AND l.life_end < h.ts), false)
        OR bool_or(
            coalesce(l.life_start, h.ts) <= h.ts AND (NOT l.ended OR l.life_end >= h.ts)
        ) AS there
    FROM holding AS h
    SEMI JOIN devices AS d ON h.cluster = d.cluster AND h.device = d.device
    LEFT JOIN lives AS l
        ON h.cluster = l.cluster AND h.namespace = l.namespace AND h.pod = l.pod
    WHERE h.ts >= $since AND h.ts < $until
    GROUP BY h.cluster, h.device, h.ts, h.namespace, h.pod
)

SELECT
    *,
    share IS null
    AND count(*) OVER one_sample > 1
    AND count_if(there) OVER one_sample = 1 AS alone
FROM samples
WINDOW one_sample AS (PARTITION BY cluster, device, ts)
