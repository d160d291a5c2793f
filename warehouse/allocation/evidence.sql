-- Everything that says that a pod held a device: one row per stretch, best evidence first.
-- A known life outranks the looks: a terminating pod still owns its device, and so does one that
-- is pulling its image (admission to termination, domain.md section 3.2).
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
    'telemetry' AS rule
FROM matched
WHERE life_start IS NOT null
UNION ALL
SELECT
    m.cluster,
    m.device,
    m.namespace,
    m.pod,
    m.uid,
    coalesce(r.run_start, m.first_bucket),
    coalesce(r.run_end, m.last_bucket + INTERVAL 5 MINUTE),
    null,
    2,
    'telemetry'
FROM matched AS m
LEFT JOIN runs AS r
    ON
        m.cluster = r.cluster AND m.device = r.device
        AND m.namespace = r.namespace AND m.pod = r.pod
WHERE m.life_start IS null
UNION ALL
SELECT
    h.cluster,
    h.device,
    h.namespace,
    h.pod,
    l.uid,
    coalesce(l.life_start, h.first_ts),
    CASE WHEN l.ended THEN l.life_end ELSE greatest(l.life_end, h.last_ts) END,
    h.share,
    1,
    'time-slicing'
FROM shared AS h
LEFT JOIN lives AS l
    ON
        h.cluster = l.cluster AND h.namespace = l.namespace AND h.pod = l.pod
        AND coalesce(l.life_start, h.first_ts) < h.last_ts
        AND (NOT l.ended OR h.first_ts < l.life_end)
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
    3,
    'listed'
FROM listed AS d
INNER JOIN lives AS l ON d.cluster = l.cluster AND d.uid = l.uid
WHERE l.life_start IS NOT null
