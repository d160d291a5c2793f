-- Each pod's share of each device over time, inside the window and after the pod's startup. The
-- start of a pod is read as in `warehouse/ledger/owners.sql`.
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
    epoch_us(
        greatest(
            a.start,
            $since,
            coalesce(
                p.scheduled_at,
                p.started_at,
                CASE WHEN a.start > d.first_seen + INTERVAL 5 MINUTE THEN a.start END
            ) + to_seconds($startup_s)
        )
    ) AS start_us,
    epoch_us(least(a."end", $until)) AS end_us
FROM allocation AS a
LEFT JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
WHERE
    a.start < $until AND a."end" > $since
    AND (
        $buckets = 1
        OR hash(a.cluster, a.namespace, a.workload_kind, a.workload) % $buckets = $bucket
    )
    AND (
        len($workloads) = 0
        OR list_contains(
            $workloads::VARCHAR[],
            concat_ws('/', a.cluster, a.namespace, a.workload_kind, a.workload)
        )
    )
ORDER BY a.cluster, a.device, start_us, a.pod_uid
