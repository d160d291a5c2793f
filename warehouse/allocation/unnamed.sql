-- Running pods that request GPUs and whose devices no source names (exporters lose pod labels,
-- telemetry-and-waste.md#telemetry-faults). They are spread over the devices of their node that no
-- other pod held at the time, and over the node's GPUs that no exporter shows. Where requests equal
-- the number of such devices, the result is exact; otherwise it is an estimate. Where the exporter
-- names the pods of other devices of the node, and the unseen GPUs suffice, these pods hold them
-- and none that is shown: `<node>/untracked<k>`, from the last one down, since the ledger numbers
-- those that nobody holds from the first one up. Of a device in parts the exporter may name the pod
-- of one part only: it is open to pods that request a part.
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

-- The GPUs of each pod's node that no exporter shows, in this pod's time.
beside AS (
    SELECT
        a.cluster,
        a.uid,
        max(e.gpu_count) AS gpu_count,
        max(e.gpu_count) - count(DISTINCT d.device) AS unseen,
        max(e.gpu_replicas) > 1 AS divided,
        count(h.device) > 0 AS named
    FROM requesting_pods AS a
    INNER JOIN node_eras AS e
        ON
            a.cluster = e.cluster AND a.node = e.node
            AND a.end_at > e.holds_from AND a.start_at < e.holds_to
    INNER JOIN device AS d
        ON
            a.cluster = d.cluster AND a.node = d.node AND d.parent IS null
            AND a.end_at > d.first_seen AND a.start_at < d.last_seen
    LEFT JOIN best_evidence AS h
        ON
            d.cluster = h.cluster
            AND d.device = h.device
            AND a.end_at > h.start_at AND a.start_at < h.end_at
    GROUP BY a.cluster, a.uid
),

wanted AS (
    SELECT
        a.*,
        b.gpu_count,
        a.gpus < 1 AND coalesce(b.divided, false) AS is_part,
        greatest(0, coalesce(b.unseen, 0)) AS unseen,
        ceil(a.gpus)::BIGINT AS slots,
        coalesce(b.named, false)
        AND b.unseen >= (
            SELECT sum(o.gpus) FROM requesting_pods AS o
            WHERE
                o.cluster = a.cluster AND o.node = a.node
                AND o.start_at < a.end_at AND o.end_at > a.start_at
        ) AS hidden
    FROM requesting_pods AS a
    LEFT JOIN beside AS b ON a.cluster = b.cluster AND a.uid = b.uid
),

open_devices AS (
    SELECT
        a.*,
        d.device,
        a.unseen + count(*) OVER (PARTITION BY a.cluster, a.uid) AS devices
    FROM wanted AS a
    INNER JOIN device AS d
        ON
            a.cluster = d.cluster AND a.node = d.node AND d.parent IS null
            AND a.end_at > d.first_seen AND a.start_at < d.last_seen
    WHERE
        NOT a.hidden
        AND NOT EXISTS (
            SELECT 1 FROM best_evidence AS h
            LEFT JOIN lives AS o ON h.cluster = o.cluster AND h.pod_uid = o.uid
            WHERE
                h.cluster = d.cluster AND h.device = d.device
                AND h.start_at < a.end_at AND h.end_at > a.start_at
                AND NOT (a.is_part AND coalesce(o.gpu_request, 1) < 1)
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
    CASE WHEN gpus >= devices AND unseen = 0 THEN 'whole-node' ELSE 'request' END AS rule
FROM open_devices
UNION ALL BY NAME
SELECT
    cluster,
    node || '/untracked' || (gpu_count - 1 - (before + slot) % unseen)::BIGINT AS device,
    namespace,
    pod,
    uid AS pod_uid,
    start_at,
    end_at,
    least(1, gpus - slot) AS share,
    1 AS turn,
    'request' AS rule
FROM (
    SELECT
        *,
        coalesce(
            sum(slots) OVER (
                PARTITION BY cluster, node ORDER BY start_at, uid
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0
        ) AS before,
        unnest(range(slots)) AS slot
    FROM wanted
    WHERE hidden
) AS hidden_pods
