-- The inventory's pods of the names that telemetry gives, each with the reason why it holds nothing
-- (`refusal`): exporters can be wrong, and anybody may run one. It holds nothing if it requests no
-- GPU, or if it runs on another node than the one whose exporter names it, provided that telemetry
-- and inventory use the same node names. Pods that may be exporters have an address: their scraper
-- names them on devices that nobody holds, which is no claim (`of_exporter`).
SELECT
    s.cluster,
    s.device,
    s.namespace,
    s.pod,
    s.node,
    s.first_bucket,
    s.last_bucket,
    s.buckets,
    l.uid,
    l.life_start,
    CASE
        WHEN l.ended OR (l.unseen AND s.last_bucket < l.life_end + INTERVAL 5 MINUTE)
            THEN l.life_end
        ELSE greatest(l.life_end, s.last_bucket + INTERVAL 5 MINUTE)
    END AS life_end,
    least(l.life_end, s.last_bucket + INTERVAL 5 MINUTE) AS until_at,
    greatest(coalesce(l.life_start, l.made_at, s.first_bucket), s.first_bucket) AS from_at,
    coalesce(l.node = s.node, true) AS here,
    e.address IS NOT null AND coalesce(l.gpu_request, 0) = 0 AS of_exporter,
    CASE
        WHEN l.requests_none OR of_exporter THEN 'it requests no GPU'
        WHEN w.device IS NOT null THEN 'the GPU is not one of this node'
        WHEN n.node IS NOT null AND NOT here THEN 'it does not run on the node of the GPU'
    END AS refusal
FROM seen AS s
INNER JOIN lives AS l
    ON s.cluster = l.cluster AND s.namespace = l.namespace AND s.pod = l.pod
LEFT JOIN node AS n ON s.cluster = n.cluster AND s.node = n.node
LEFT JOIN address AS e ON s.cluster = e.cluster AND 'pod/' || s.pod = e.address AND l.node = e.node
LEFT JOIN misplaced AS w
    ON s.cluster = w.cluster AND s.device = w.device AND l.node = w.node
WHERE
    s.pod <> ''
    AND coalesce(l.life_start, l.made_at, s.first_bucket)
    < s.last_bucket + INTERVAL 5 MINUTE
    AND (NOT l.ended OR s.first_bucket < l.life_end)
