-- The eras of nodes (`observed`) in order; the newest was last observed when the node was.
SELECT
    e.* REPLACE ( -- noqa: AM04
        CASE WHEN e.valid_to IS null THEN greatest(e.last_seen, n.last_seen) ELSE e.last_seen END
            AS last_seen
    )
FROM every_era AS e
SEMI JOIN observed AS o ON e.cluster = o.cluster AND e.node = o.node
LEFT JOIN node AS n ON e.cluster = n.cluster AND e.node = n.node
ORDER BY e.cluster, e.node, e.valid_from
