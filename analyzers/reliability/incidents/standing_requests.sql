-- Stretches of at least $least_s seconds in which requests waited at a pod's server and no token
-- came nor did a request end; a server that does not count tokens has none.
SELECT
    cluster,
    namespace,
    pod,
    min(ts) AS at,
    max(ts + to_milliseconds((1000 * interval_s)::BIGINT)) AS ended,
    max(requests_waiting) AS waiting
FROM (
    SELECT
        *, -- noqa: AM04
        count(*) FILTER (WHERE NOT stands) OVER pods AS island
    FROM (
        SELECT
            cluster,
            namespace,
            pod,
            ts,
            coalesce(interval_s, 60) AS interval_s,
            requests_waiting,
            coalesce(
                requests_waiting > 0 AND tokens_per_s = 0 AND coalesce(requests_per_s, 0) = 0, false
            ) AS stands
        FROM pod_sample
        WHERE ts >= $since AND ts < $until AND requests_waiting IS NOT null
    ) AS load
    WINDOW pods AS (PARTITION BY cluster, namespace, pod ORDER BY ts)
) AS islands
WHERE stands
GROUP BY cluster, namespace, pod, island
HAVING sum(interval_s) >= $least_s
ORDER BY ALL
