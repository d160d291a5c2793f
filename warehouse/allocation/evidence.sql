-- Every piece of evidence that a pod held a device: one row per stretch, best evidence first. A
-- lifetime that the inventory knows outranks the device samples: a terminating pod still holds its
-- device, and so does a pod that pulls its image (admission to termination,
-- telemetry-and-waste.md#money). Of a pod on more devices than it requests, one that another takes
-- over from was its own from its first to its last sight: a GPU was replaced (its last sample may
-- reach into the first five minutes of the other). `turn` 2 = the claim gets what those of turn 1
-- leave of a device: the pod's own annotation supports it, or no inventory has the pod.
WITH successive AS (
    SELECT
        m.*,
        max(m.first_bucket) OVER of_pod AS taken_over_at,
        taken_over_at > m.first_bucket AND taken_over_at >= m.last_bucket AS is_followed,
        min(m.last_bucket) OVER of_pod < m.last_bucket
        AND min(m.last_bucket) OVER of_pod <= m.first_bucket AS follows,
        coalesce(
            count(*) OVER of_pod > greatest(1, l.gpu_request * coalesce(n.gpu_replicas, 1)), false
        ) AS too_many
    FROM matched AS m
    LEFT JOIN lives AS l ON m.cluster = l.cluster AND m.uid = l.uid
    LEFT JOIN node_eras AS n
        ON
            l.cluster = n.cluster AND l.node = n.node
            AND greatest(l.life_start, $since) >= n.holds_from
            AND greatest(l.life_start, $since) < n.holds_to
    WHERE m.life_start IS NOT null
    WINDOW of_pod AS (PARTITION BY m.cluster, m.uid)
)

SELECT
    cluster,
    device,
    namespace,
    pod,
    uid,
    CASE WHEN too_many AND follows THEN first_bucket ELSE life_start END AS start_at,
    CASE
        WHEN too_many AND is_followed THEN least(taken_over_at, last_bucket + INTERVAL 5 MINUTE)
        ELSE life_end
    END AS end_at,
    null::DOUBLE AS share,
    2 AS strength,
    1 AS turn,
    'telemetry' AS rule
FROM successive
UNION ALL BY NAME
SELECT
    r.cluster,
    r.device,
    r.namespace,
    r.pod,
    r.uid,
    CASE
        WHEN c.from_before AND r.first_bucket = c.first_bucket THEN $since
        ELSE r.first_bucket + to_milliseconds(round(1000 * (300 - coalesce(f.held_s, 300)))::BIGINT)
    END AS start_at,
    CASE
        WHEN c.until_after AND r.last_bucket = c.last_bucket THEN $until
        ELSE r.last_bucket + to_milliseconds(round(1000 * coalesce(l.held_s, 300))::BIGINT)
    END AS end_at,
    null AS share,
    2 AS strength,
    CASE WHEN r.uid IS null THEN 2 ELSE 1 END AS turn,
    'telemetry' AS rule
FROM runs AS r
LEFT JOIN edges AS f
    ON
        r.cluster = f.cluster AND r.device = f.device AND r.first_bucket = f.bucket
        AND r.namespace = f.namespace AND r.pod = f.pod
LEFT JOIN edges AS l
    ON
        r.cluster = l.cluster AND r.device = l.device AND r.last_bucket = l.bucket
        AND r.namespace = l.namespace AND r.pod = l.pod
LEFT JOIN continued AS c
    ON
        r.cluster = c.cluster AND r.device = c.device
        AND r.namespace = c.namespace AND r.pod = c.pod
        AND r.uid IS NOT DISTINCT FROM c.uid
UNION ALL BY NAME
SELECT
    cluster,
    device,
    namespace,
    pod,
    uid,
    $since AS start_at,
    $until AS end_at,
    null AS share,
    2 AS strength,
    CASE WHEN uid IS null THEN 2 ELSE 1 END AS turn,
    'telemetry' AS rule
FROM continued
WHERE throughout AND first_bucket IS null
UNION ALL BY NAME
SELECT
    cluster,
    device,
    namespace,
    pod,
    uid,
    start_at,
    end_at,
    share,
    CASE WHEN alone THEN 3 ELSE 1 END AS strength,
    CASE WHEN uid IS null THEN 2 ELSE 1 END AS turn,
    CASE WHEN alone THEN 'telemetry' ELSE 'time-slicing' END AS rule
FROM shared
WHERE refusal IS null
UNION ALL BY NAME
SELECT
    d.cluster,
    d.device,
    l.namespace,
    l.pod,
    d.uid,
    l.life_start AS start_at,
    l.life_end AS end_at,
    d.share,
    4 AS strength,
    CASE WHEN d.by_annotation THEN 2 ELSE 1 END AS turn,
    CASE WHEN d.estimated THEN 'annotation' ELSE 'listed' END AS rule
FROM listed AS d
INNER JOIN lives AS l ON d.cluster = l.cluster AND d.uid = l.uid
WHERE l.life_start IS NOT null AND d.refusal IS null
