-- Running pods that request GPUs and whose devices no source names (exporters lose pod labels,
-- telemetry-and-waste.md#telemetry-faults). They are spread over the devices of their node that no
-- other pod held at the time. Where the requests equal the number of such devices, the result is
-- exact; otherwise it is an estimate.
WITH requesting_pods AS (
    SELECT
        l.cluster,
        l.uid,
        l.namespace,
        l.pod,
        l.node,
        greatest(l.life_start, $since) AS start_at,
        least(l.life_end, $until) AS end_at,
        l.gpu_request AS gpus
    FROM lives AS l
    ANTI JOIN best_evidence AS u ON l.cluster = u.cluster AND l.uid = u.pod_uid
    ANTI JOIN best_evidence AS h
        ON l.cluster = h.cluster AND l.namespace = h.namespace AND l.pod = h.pod
    WHERE
        l.gpu_request > 0
        AND NOT l.holder
        AND l.life_start IS NOT null
        AND coalesce(l.gpu_resource, '') NOT LIKE '%mig%'
        AND greatest(l.life_start, $since) < least(l.life_end, $until)
),

open_devices AS (
    SELECT
        a.*,
        d.device,
        count(*) OVER (PARTITION BY a.cluster, a.uid) AS devices
    FROM requesting_pods AS a
    INNER JOIN device AS d
        ON
            a.cluster = d.cluster AND a.node = d.node AND d.parent IS null
            AND a.end_at > d.first_seen AND a.start_at < d.last_seen
    WHERE
        NOT EXISTS (
            SELECT 1 FROM best_evidence AS h
            WHERE
                h.cluster = d.cluster AND h.device = d.device
                AND h.start_at < a.end_at AND h.end_at > a.start_at
        )
        AND NOT EXISTS (
            SELECT 1 FROM device AS i
            WHERE i.cluster = d.cluster AND i.parent = d.device
        )
)

SELECT
    cluster,
    device,
    namespace,
    pod,
    uid AS pod_uid,
    start_at,
    end_at,
    least(1, gpus / devices) AS share,
    1 AS turn,
    CASE WHEN gpus >= devices THEN 'whole-node' ELSE 'request' END AS rule
FROM open_devices
