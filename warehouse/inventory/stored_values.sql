-- The eras of objects of one kind (`observed`) in order; the newest was last observed when the
-- object was. An object without rows has had one value since its first observation, or none.
-- Devices are observed in buckets.
WITH objects AS (
    SELECT
        cluster,
        uid AS id,
        coalesce(
            if($kind = 'pod.annotations', annotations_from, labels_from), first_seen
        ) AS first_seen,
        last_seen,
        CASE $kind
            WHEN 'pod.team' THEN if(labels IS null, team, coalesce(team, ''))
            WHEN 'pod.queue' THEN if(labels IS null, queue, coalesce(queue, ''))
            WHEN 'pod.labels' THEN labels
            WHEN 'pod.annotations' THEN annotations
        END AS value
    FROM pod
    WHERE $kind <> 'device.node'
    UNION ALL BY NAME
    SELECT
        cluster,
        device AS id,
        time_bucket(INTERVAL 5 MINUTE, first_seen) AS first_seen,
        time_bucket(
            INTERVAL 5 MINUTE,
            greatest(first_seen, last_seen - to_seconds(coalesce(interval_s, 0)))
        ) AS last_seen,
        node AS value
    FROM device
    WHERE $kind = 'device.node'
)

SELECT
    o.cluster,
    o.id,
    coalesce(e.first_seen, o.first_seen, o.last_seen) AS first_seen,
    CASE WHEN e.valid_to IS null THEN greatest(e.last_seen, o.last_seen) ELSE e.last_seen END
        AS last_seen,
    CASE WHEN e.id IS null THEN o.value ELSE e.value END AS value
FROM objects AS o
SEMI JOIN observed AS w ON o.cluster = w.cluster AND o.id = w.id
LEFT JOIN attribute_era AS e ON e.kind = $kind AND o.cluster = e.cluster AND o.id = e.id
WHERE e.id IS NOT null OR o.value IS NOT null
ORDER BY o.cluster, o.id, e.valid_from
