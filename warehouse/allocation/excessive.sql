-- Pods that exporters name on more whole devices than they request: which are theirs, nobody knows.
SELECT
    b.cluster,
    b.pod_uid
FROM (
    SELECT DISTINCT
        cluster,
        device,
        pod_uid
    FROM best_evidence
    WHERE rule = 'telemetry'
) AS b
INNER JOIN lives AS l ON b.cluster = l.cluster AND b.pod_uid = l.uid
INNER JOIN device AS d ON b.cluster = d.cluster AND b.device = d.device
LEFT JOIN node_eras AS n
    ON
        l.cluster = n.cluster AND l.node = n.node
        AND greatest(l.life_start, $since) >= n.holds_from
        AND greatest(l.life_start, $since) < n.holds_to
WHERE l.gpu_request > 0 AND coalesce(l.gpu_core_request_pct, l.gpu_mem_request_bytes) IS null
GROUP BY b.cluster, b.pod_uid
HAVING
    sum(d.weight)
    > greatest(1, any_value(l.gpu_request) * greatest(1, any_value(coalesce(n.gpu_replicas, 1))))
    + 1e-6
