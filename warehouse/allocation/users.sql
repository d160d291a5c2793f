-- Holder pods (KAI, Run:ai) own a whole device for the pods that share it. Those pods have the same
-- label value on the same node. What they do not request stays free.
WITH labels AS (SELECT unnest($holder_labels) AS label),

groups AS (
    SELECT
        l.*,
        json_extract_string(l.labels, '$."' || k.label || '"') AS gpu_group
    FROM lives AS l, labels AS k
    WHERE json_valid(l.labels)
)

SELECT
    h.cluster,
    h.device,
    u.namespace,
    u.pod,
    u.uid AS pod_uid,
    greatest(h.start_at, coalesce(u.life_start, h.start_at)) AS start_at,
    least(h.end_at, CASE WHEN u.ended THEN u.life_end ELSE h.end_at END) AS end_at,
    null::DOUBLE AS share,
    1 AS turn,
    'holder' AS rule,
    h.pod_uid AS holder_uid
FROM best_evidence AS h
INNER JOIN groups AS g ON h.cluster = g.cluster AND h.pod_uid = g.uid AND g.holder
INNER JOIN groups AS u
    ON
        g.cluster = u.cluster AND g.gpu_group = u.gpu_group AND NOT u.holder
        AND coalesce(g.node, u.node, '') = coalesce(u.node, g.node, '')
