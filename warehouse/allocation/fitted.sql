-- Claims as they are. On overcommitted devices, claims are cut at each change and scaled down so
-- that they sum to one device: first those of turn 1, then the others in what is left.
SELECT
    c.cluster,
    c.device,
    c.pod_uid,
    c.start_at,
    c.end_at,
    c.namespace,
    c.pod,
    c.workload_kind,
    c.workload,
    c.team,
    c.share,
    c.attribution,
    c.rule
FROM charged AS c
ANTI JOIN crowded AS x ON c.cluster = x.cluster AND c.device = x.device
UNION ALL BY NAME
SELECT
    c.cluster,
    c.device,
    c.pod_uid,
    x.start_at,
    x.end_at,
    c.namespace,
    c.pod,
    c.workload_kind,
    c.workload,
    c.team,
    CASE
        WHEN x.claimed <= 1 + 1e-9 THEN c.share
        WHEN c.turn = 1 THEN c.share / greatest(1, x.first_claimed)
        ELSE c.share * greatest(0, 1 - x.first_claimed) / (x.claimed - x.first_claimed)
    END AS share,
    CASE
        WHEN c.turn = 1 AND x.first_claimed <= 1 + 1e-9 THEN c.attribution
        WHEN x.claimed > 1 + 1e-9 THEN 'estimated'
        ELSE c.attribution
    END AS attribution,
    c.rule
FROM charged AS c
INNER JOIN crowded AS x
    ON
        c.cluster = x.cluster AND c.device = x.device
        AND c.start_at <= x.start_at AND c.end_at >= x.end_at
WHERE c.turn = 1 OR x.claimed <= 1 + 1e-9 OR x.first_claimed < 1 - 1e-9
