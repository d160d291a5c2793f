-- Which pod telemetry names on which device, first and last bucket. Pod '' = telemetry names no
-- pod.
SELECT
    cluster,
    device,
    namespace,
    pod,
    min(bucket) AS first_bucket,
    max(bucket) AS last_bucket,
    max(node) AS node,
    min(node) AS other_node,
    count(*) AS buckets
FROM rollup_5m
WHERE bucket >= $since AND bucket < $until
GROUP BY cluster, device, namespace, pod
