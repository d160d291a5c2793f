-- Pods that held devices in a window and whose owner has no uid in the inventory.
SELECT DISTINCT
    a.namespace,
    a.pod,
    a.pod_uid,
    d.node
FROM allocation AS a
LEFT JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
WHERE
    a.cluster = $cluster
    AND a.start < $until
    AND coalesce(a."end", $until) >= $since
    AND p.workload_uid IS null
ORDER BY ALL
