-- Which pod telemetry names on which device, and from when to when. Pod '' = it names nobody.
SELECT
    cluster,
    device,
    namespace,
    pod,
    min(bucket) AS first_bucket,
    max(bucket) AS last_bucket,
    max(node) AS node,
    count(*) AS buckets
FROM rollup_5m
WHERE bucket >= $since AND bucket < $until
GROUP BY cluster, device, namespace, pod
