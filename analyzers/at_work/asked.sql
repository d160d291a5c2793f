-- The pods of each stretch, with the cores above which they are at work: a share of what they ask.
-- Looks are put in order by the number of the `piece`: by four names it took half as long again.
SELECT
    dense_rank() OVER (ORDER BY s.span, s.cluster, s.namespace, s.pod) AS piece,
    s.span,
    s.cluster,
    s.namespace,
    s.pod,
    s.start_at,
    s.end_at,
    greatest(1.0, coalesce(p.cpu_request_milli, 1000) / 1000) * $cpu_share AS cores
FROM idle_span AS s
LEFT JOIN pod AS p ON s.cluster = p.cluster AND s.uid = p.uid
