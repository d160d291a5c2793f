-- Who held what in the window, and since when the pod has been there: only a birth that is known,
-- or a change of hands that was watched, can be a startup.
SELECT
    a.cluster,
    a.device,
    a.namespace,
    a.pod,
    a.workload_kind,
    a.workload,
    a.team,
    a.share,
    a.start AS start_at,
    a."end" AS end_at,
    coalesce(
        p.scheduled_at,
        p.started_at,
        CASE WHEN a.start > d.first_seen + INTERVAL 5 MINUTE THEN a.start END
    ) AS born
FROM allocation AS a
LEFT JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
LEFT JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
WHERE a.start < $until AND a."end" > $since AND a.start < a."end"
