-- Jobs on several pods that do not report their throughput, by cluster.
WITH reporting_pods AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod
    FROM step_sample
    WHERE ts >= $since AND ts < $until
),

jobs AS (
    SELECT
        a.cluster,
        a.namespace,
        a.workload_kind,
        a.workload,
        count(t.pod) AS reporting_pods
    FROM allocation AS a
    LEFT JOIN reporting_pods AS t
        ON a.cluster = t.cluster AND a.namespace = t.namespace AND a.pod = t.pod
    WHERE
        a.start < $until AND a."end" > $since AND a.workload IS NOT null
        AND list_contains($kinds, a.workload_kind)
    GROUP BY ALL
    HAVING count(DISTINCT a.pod_uid) > 1
)

SELECT
    cluster,
    count(*) AS jobs
FROM jobs
WHERE reporting_pods = 0
GROUP BY ALL
ORDER BY ALL
