-- What served work cost: requests by the pods' own rate, tokens by the latencies between them.
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
),

counted AS (
    SELECT
        p.cluster,
        p.workload,
        sum(r.requests) AS requests,
        sum(t.tokens) AS tokens
    FROM pods AS p
    LEFT JOIN requests AS r ON p.cluster = r.cluster AND p.namespace = r.namespace AND p.pod = r.pod
    LEFT JOIN tokens AS t ON p.cluster = t.cluster AND p.namespace = t.namespace AND p.pod = t.pod
    WHERE r.requests > 0 OR t.tokens > 0
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.team,
    s.workload,
    s.gpu_hours,
    s.usd,
    c.requests,
    c.tokens,
    1e6 * s.usd::DOUBLE / nullif(c.requests, 0) AS usd_per_million_requests,
    1e6 * s.usd::DOUBLE / nullif(c.tokens, 0) AS usd_per_million_tokens
FROM counted AS c
INNER JOIN spent AS s ON c.cluster = s.cluster AND c.workload = s.workload
ORDER BY s.usd DESC NULLS LAST, s.workload ASC
