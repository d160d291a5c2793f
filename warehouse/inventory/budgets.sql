-- The disruption budgets in the last polls of each cluster. Pods are watched, budgets are listed
-- less often: a budget missing during an hour of polls of pods is deleted, unless the last poll of
-- budgets did not read them all.
SELECT
    b.cluster,
    b.namespace,
    b.name,
    b.selector,
    b.min_available,
    b.max_unavailable,
    coalesce(b.disruptions_allowed, 0) AS allowed,
    coalesce(b.expected_pods, 0) > 0 AS counted
FROM disruption_budget AS b
LEFT JOIN last_lists AS l ON b.cluster = l.cluster
LEFT JOIN budget_polls AS p ON b.cluster = p.cluster
WHERE
    b.selector <> 'null'
    AND (b.last_seen >= coalesce(l.last_list, b.last_seen) - INTERVAL 1 HOUR OR p.up = false)
ORDER BY b.cluster, b.namespace, b.name
