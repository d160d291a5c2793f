-- Telemetry's names joined to the inventory's pods. Names are used again (StatefulSets): a life
-- must overlap the stretch in which the name was seen by a bucket, or be the best there is.
SELECT
    s.cluster,
    s.device,
    s.namespace,
    s.pod,
    s.first_bucket,
    s.last_bucket,
    s.buckets,
    l.uid,
    l.life_start,
    CASE
        WHEN l.ended THEN l.life_end
        ELSE greatest(l.life_end, s.last_bucket + INTERVAL 5 MINUTE)
    END AS life_end
FROM seen AS s
LEFT JOIN lives AS l
    ON
        s.cluster = l.cluster AND s.namespace = l.namespace AND s.pod = l.pod
        AND coalesce(l.life_start, s.first_bucket) < s.last_bucket + INTERVAL 5 MINUTE
        AND (NOT l.ended OR s.first_bucket < l.life_end)
WHERE s.pod <> ''
QUALIFY
    row_number() OVER (
        PARTITION BY s.cluster, s.device, s.namespace, s.pod
        ORDER BY
            epoch(least(life_end, s.last_bucket + INTERVAL 5 MINUTE))
            - epoch(greatest(coalesce(l.life_start, s.first_bucket), s.first_bucket)) DESC,
            l.uid
    ) = 1
    OR (
        l.life_start IS NOT null
        AND least(life_end, s.last_bucket + INTERVAL 5 MINUTE)
        >= greatest(l.life_start, s.first_bucket) + INTERVAL 5 MINUTE
    )
