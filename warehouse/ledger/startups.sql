-- A startup lasts from a pod's birth to its first activity, at most `startup_s`.
SELECT
    o.cluster,
    o.device,
    o.namespace,
    o.pod,
    o.born,
    least(
        o.born + to_seconds($startup_s),
        coalesce(
            min(f.bucket) FILTER (WHERE f.low_s + f.busy_s > 0) + INTERVAL 5 MINUTE,
            o.born + to_seconds($startup_s)
        )
    ) AS ready
FROM owners AS o
LEFT JOIN fine AS f
    ON
        o.cluster = f.cluster AND o.device = f.device
        AND f.bucket >= time_bucket(INTERVAL 5 MINUTE, o.born)
        AND (f.pod = '' OR (o.namespace = f.namespace AND o.pod = f.pod))
WHERE o.born + to_seconds($startup_s) > $since
GROUP BY o.cluster, o.device, o.namespace, o.pod, o.born
