-- Every piece of evidence that a pod held a device: one row per stretch, best evidence first. A
-- lifetime that the inventory knows outranks the device samples: a terminating pod still holds its
-- device, and so does a pod that pulls its image (admission to termination,
-- telemetry-and-waste.md#money). `turn` 2 = the claim gets what those of turn 1 leave of a device:
-- the pod's own annotation supports it, or no inventory has the pod.
SELECT
    cluster,
    device,
    namespace,
    pod,
    uid,
    life_start AS start_at,
    life_end AS end_at,
    null::DOUBLE AS share,
    2 AS strength,
    1 AS turn,
    'telemetry' AS rule
FROM matched
WHERE life_start IS NOT null
UNION ALL
SELECT
    r.cluster,
    r.device,
    r.namespace,
    r.pod,
    r.uid,
    r.first_bucket + to_milliseconds(round(1000 * (300 - coalesce(f.held_s, 300)))::BIGINT),
    r.last_bucket + to_milliseconds(round(1000 * coalesce(l.held_s, 300))::BIGINT),
    null,
    2,
    CASE WHEN r.uid IS null THEN 2 ELSE 1 END,
    'telemetry'
FROM runs AS r
LEFT JOIN edges AS f
    ON
        r.cluster = f.cluster AND r.device = f.device AND r.first_bucket = f.bucket
        AND r.namespace = f.namespace AND r.pod = f.pod
LEFT JOIN edges AS l
    ON
        r.cluster = l.cluster AND r.device = l.device AND r.last_bucket = l.bucket
        AND r.namespace = l.namespace AND r.pod = l.pod
UNION ALL
SELECT
    cluster,
    device,
    namespace,
    pod,
    uid,
    start_at,
    end_at,
    share,
    CASE WHEN alone THEN 3 ELSE 1 END,
    CASE WHEN uid IS null THEN 2 ELSE 1 END,
    CASE WHEN alone THEN 'telemetry' ELSE 'time-slicing' END
FROM shared
WHERE refusal IS null
UNION ALL
SELECT
    d.cluster,
    d.device,
    l.namespace,
    l.pod,
    d.uid,
    l.life_start,
    l.life_end,
    d.share,
    4,
    CASE WHEN d.by_annotation THEN 2 ELSE 1 END,
    CASE WHEN d.estimated THEN 'annotation' ELSE 'listed' END
FROM listed AS d
INNER JOIN lives AS l ON d.cluster = l.cluster AND d.uid = l.uid
WHERE l.life_start IS NOT null AND d.refusal IS null
