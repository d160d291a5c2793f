-- The pods of each stretch, with the cores above which they are active: a share of their request,
-- with a low maximum.
-- Samples are sorted by the number of the `piece`: sorting by four names took 50 % longer.
SELECT
    dense_rank() OVER (ORDER BY s.span, s.cluster, s.namespace, s.pod) AS piece,
    s.span,
    s.cluster,
    s.namespace,
    s.pod,
    s.start_at,
    s.end_at,
    least(
        greatest(1.0, coalesce(p.cpu_request_milli, 1000) / 1000) * $cpu_share, $cpu_cores
    ) AS cores
FROM stretch_pods AS s
LEFT JOIN pod AS p ON s.cluster = p.cluster AND s.uid = p.uid
