-- Who serves requests and who is spread over pods: what no latency and no step time tells of.
WITH served AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod
    FROM pod_sample
    WHERE ts >= $recent AND ts < $until AND requests_per_s IS NOT null
)

SELECT
    p.cluster,
    count(DISTINCT p.uid) FILTER (WHERE s.pod IS NOT null) AS serving,
    count(DISTINCT concat_ws('/', p.namespace, p.workload)) FILTER (
        WHERE p.workload_kind IN (
            'PyTorchJob', 'MPIJob', 'TFJob', 'JobSet', 'LeaderWorkerSet', 'RayCluster', 'RayJob'
        )
    ) AS distributed
FROM pod AS p
LEFT JOIN served AS s
    ON p.cluster = s.cluster AND p.namespace = s.namespace AND p.pod = s.pod
WHERE p.first_seen < $until AND p.last_seen >= $since
GROUP BY ALL
ORDER BY ALL
