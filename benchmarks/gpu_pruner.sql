-- gpu-pruner's rule at every check: the window's maximum of GR_ENGINE_ACTIVE, or of GPU_UTIL where
-- that series is absent, is zero. Instances of a GPU are summed (the rule groups by the GPU's
-- index), and one such series of a pod is enough for its whole controller.
SELECT DISTINCT
    p.namespace,
    p.workload_kind,
    p.workload,
    s.step
FROM (
    SELECT
        node,
        namespace,
        pod,
        container,
        gpu_index,
        step
    FROM peer_series
    GROUP BY ALL
    HAVING sum(coalesce(gr, util / 100)) = 0
) AS s
INNER JOIN pod_owners AS p ON s.namespace = p.namespace AND s.pod = p.pod
WHERE
    make_timestamp((s.step * $every_s * 1e6)::BIGINT)
    BETWEEN p.created_at + to_seconds($window_s + $grace_s)
    AND coalesce(p.finished_at, p.last_seen)
    AND p.started_at IS NOT null
ORDER BY ALL
