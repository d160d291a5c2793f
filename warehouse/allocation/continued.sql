-- Pods without a known lifetime that the table has on a device at an end of the window, where the
-- device is silent: they were named on it before and after the silence, of which the window has a
-- part, or which has the window (`throughout`). `first_bucket` null = the device is silent in it.
SELECT
    a.cluster,
    a.device,
    a.namespace,
    a.pod,
    l.uid,
    min(s.first_bucket) AS first_bucket,
    max(s.last_bucket) AS last_bucket,
    bool_or(a.start < $since AND a."end" > $since) AS from_before,
    bool_or(a.start < $until AND a."end" > $until) AS until_after,
    bool_or(a.start < $since AND a."end" > $until) AS throughout
FROM allocation AS a
LEFT JOIN seen AS s ON a.cluster = s.cluster AND a.device = s.device
LEFT JOIN lives AS l ON a.cluster = l.cluster AND a.pod_uid = l.uid
WHERE
    a.start < $until AND a."end" > $since
    AND a.rule IN ('telemetry', 'fraction', 'mig')
    AND l.life_start IS null AND NOT coalesce(l.ended, false)
GROUP BY a.cluster, a.device, a.namespace, a.pod, l.uid
