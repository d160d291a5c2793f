-- When each device of some pods was first and last seen in the window.
SELECT
    cluster,
    namespace,
    pod,
    device,
    min(ts) AS first_ts,
    max(ts) AS last_ts
FROM sample
WHERE
    ts >= $since AND ts < $until
    AND list_contains($pods, hash(cluster, namespace, pod))
GROUP BY ALL
ORDER BY ALL
