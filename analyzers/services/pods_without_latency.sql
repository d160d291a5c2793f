-- Pods that serve requests and do not report their latency, by cluster.
WITH served AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod
    FROM pod_sample
    WHERE ts >= $recent AND ts < $until AND requests_per_s IS NOT null
),

reporting AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod
    FROM latency_sample
    WHERE ts >= $since AND ts < $until
)

SELECT
    s.cluster,
    count(*) AS pods
FROM served AS s
LEFT JOIN reporting AS t
    ON s.cluster = t.cluster AND s.namespace = t.namespace AND s.pod = t.pod
WHERE t.pod IS null
GROUP BY ALL
ORDER BY ALL
