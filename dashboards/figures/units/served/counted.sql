-- What each workload served: requests by its pods' own rate, tokens by the latencies between them.
WITH requests AS (
    SELECT
        cluster,
        namespace,
        pod,
        sum(requests_per_s * interval_s) AS requests
    FROM pod_sample
    WHERE ts >= $since AND ts < $until AND requests_per_s > 0
    GROUP BY ALL
),

tokens AS (
    SELECT
        cluster,
        namespace,
        pod,
        sum(count) AS tokens
    FROM latency_sample
    WHERE ts >= $since AND ts < $until AND metric = 'itl'
    GROUP BY ALL
)

SELECT
    p.cluster,
    p.namespace,
    p.owner.kind AS workload_kind,
    p.owner.name AS workload_name,
    sum(r.requests) AS requests,
    sum(t.tokens) AS tokens
FROM pods AS p
LEFT JOIN requests AS r ON p.cluster = r.cluster AND p.namespace = r.namespace AND p.pod = r.pod
LEFT JOIN tokens AS t ON p.cluster = t.cluster AND p.namespace = t.namespace AND p.pod = t.pod
WHERE r.requests > 0 OR t.tokens > 0
GROUP BY ALL
