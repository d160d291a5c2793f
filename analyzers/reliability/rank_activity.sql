-- Idle and active GPU-seconds of pods in five minutes, by the readings of their devices.
SELECT
    a.cluster,
    a.namespace,
    a.pod,
    r.bucket,
    sum(r.idle_s * a.share * d.weight) AS idle_s,
    sum((r.low_s + r.busy_s) * a.share * d.weight) AS active_s
FROM allocation AS a
INNER JOIN rollup_5m AS r
    ON
        a.cluster = r.cluster AND a.device = r.device
        AND a.start < r.bucket + INTERVAL 5 MINUTE AND a."end" > r.bucket
        AND (r.pod = '' OR (a.namespace = r.namespace AND a.pod = r.pod))
INNER JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
WHERE
    list_contains($pods, hash(a.cluster, a.namespace, a.pod))
    AND a.start < $until AND a."end" > $since
    AND r.bucket >= $since AND r.bucket < $until
GROUP BY ALL
ORDER BY a.cluster, a.namespace, a.pod, r.bucket
