-- Who held what in the window, and when the pod was born. Only a known birth, or an observed change
-- of hands, can begin a startup. `unreadable`: a pod of which the collector could not read all.
-- From here on numbers replace names: `owner_id` for a pod on a device, `holder_id` for a workload
-- and the team that pays: pods of one workload may be of several teams.
WITH named_devices AS (
    SELECT DISTINCT
        device_id,
        cluster,
        device
    FROM spans
)

SELECT
    d.device_id,
    a.cluster,
    a.device,
    dense_rank() OVER (ORDER BY d.device_id, a.namespace, a.pod) AS owner_id,
    dense_rank() OVER (
        ORDER BY a.cluster, a.namespace, a.workload_kind, a.workload, a.team
    ) AS holder_id,
    a.namespace,
    a.pod,
    a.pod_uid,
    a.workload_kind,
    a.workload,
    a.team,
    a.share,
    contains(coalesce(p.annotations, ''), '"fallow.dev/unreadable":')
    AND (p.annotations ->> '$."fallow.dev/unreadable"') IS NOT null AS unreadable,
    a.start AS start_at,
    a."end" AS end_at,
    coalesce(
        p.scheduled_at,
        p.started_at,
        -- A pod that was seen before then was not born then: telemetry had a gap.
        CASE
            WHEN
                a.start > v.first_seen + INTERVAL 5 MINUTE
                AND coalesce(p.first_seen, a.start) >= a.start - INTERVAL 5 MINUTE
                THEN a.start
        END
    ) AS born
FROM allocation AS a
INNER JOIN named_devices AS d
    ON a.cluster = d.cluster AND a.device = d.device
LEFT JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
LEFT JOIN device AS v ON a.cluster = v.cluster AND a.device = v.device
WHERE a.start < $until AND a."end" > $since AND a.start < a."end"
