-- How many evictions by schedulers and quotas were reported in the window.
SELECT coalesce(sum(coalesce(e.count, 1)), 0)::INTEGER AS evictions
FROM event AS e
WHERE
    e.reason IN ('Preempted', 'EvictedDueToPreempted', 'Evict')
    AND e.ts >= $since::TIMESTAMP
    AND e.ts < $until::TIMESTAMP
    AND ($cluster::VARCHAR IS null OR e.cluster = $cluster)
