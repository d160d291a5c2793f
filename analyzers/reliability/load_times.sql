-- How long a pod of each workload takes from its start to its first work, on average: the ledger's
-- startup on each device, by the pods that began there then. Pods without any do not count.
WITH startups AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        device,
        bucket,
        sum(seconds) AS seconds
    FROM ledger
    WHERE
        state = 'startup' AND namespace <> '' AND seconds > 0
        AND bucket >= $since AND bucket < $until
    GROUP BY ALL
),

starts AS (
    SELECT
        s.cluster,
        s.namespace,
        s.workload_kind,
        s.workload,
        count(DISTINCT hash(s.device, coalesce(a.pod_uid, ''))) AS devices
    FROM startups AS s
    LEFT JOIN allocation AS a
        ON
            s.cluster = a.cluster AND s.device = a.device AND s.namespace = a.namespace
            AND s.workload_kind = a.workload_kind AND s.workload = a.workload
            AND a.start >= s.bucket - INTERVAL 1 HOUR AND a.start < s.bucket + INTERVAL 1 HOUR
    GROUP BY ALL
)

SELECT
    s.cluster,
    s.namespace,
    s.workload_kind,
    s.workload,
    sum(s.seconds) / any_value(n.devices) AS load_s
FROM startups AS s
INNER JOIN starts AS n
    ON
        s.cluster = n.cluster AND s.namespace = n.namespace
        AND s.workload_kind = n.workload_kind AND s.workload = n.workload
GROUP BY ALL
ORDER BY ALL
