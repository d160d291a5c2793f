-- Who held what share of which device when, inside the window.
SELECT
    a.cluster,
    a.device,
    a.namespace,
    a.workload_kind,
    a.workload,
    a.team,
    a.pod,
    a.pod_uid,
    a.attribution,
    a.rule,
    coalesce(a.share, 1.0) AS share,
    epoch_us(greatest(a.start, $since)) AS start_us,
    epoch_us(least(a."end", $until)) AS end_us
FROM allocation AS a
WHERE
    a.start < $until AND a."end" > $since
    AND (
        $buckets = 1
        OR hash(a.cluster, a.namespace, a.workload_kind, a.workload) % $buckets = $bucket
    )
ORDER BY a.cluster, a.device, start_us, a.pod_uid
