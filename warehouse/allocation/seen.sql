-- Which pod telemetry names on which device and node, first and last bucket: a node that comes back
-- under another name, and a GPU in another node, are two. Pod '' = telemetry names no pod.
SELECT
    cluster,
    device,
    namespace,
    pod,
    node,
    min(bucket) AS first_bucket,
    max(bucket) AS last_bucket,
    count(*) AS buckets
FROM rollup_5m
WHERE bucket >= $since AND bucket < $until
GROUP BY cluster, device, namespace, pod, node
