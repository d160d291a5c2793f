-- Disruption budgets with their lives (`to_us` null: still there). Pods are watched, budgets are
-- listed less often: a budget missing during an hour of polls of pods is deleted, unless the last
-- poll of budgets did not read them all.
SELECT
    b.cluster,
    b.namespace,
    b.name,
    b.selector,
    b.min_available,
    b.max_unavailable,
    coalesce(b.disruptions_allowed, 0) AS allowed,
    coalesce(b.expected_pods, 0) > 0 AS counted,
    epoch_us(b.first_seen) AS from_us,
    CASE
        WHEN
            b.last_seen < coalesce(l.last_list, b.last_seen) - INTERVAL 1 HOUR
            AND coalesce(p.up, true)
            THEN epoch_us(b.last_seen)
    END AS to_us
FROM disruption_budget AS b
LEFT JOIN last_lists AS l ON b.cluster = l.cluster
LEFT JOIN budget_polls AS p ON b.cluster = p.cluster
WHERE b.selector <> 'null'
ORDER BY b.cluster, b.namespace, b.name
