-- Processes on each node's devices in the last rollups; null where any device has no data.
WITH seen AS (
    SELECT
        d.cluster,
        d.node,
        d.device,
        max(r.proc_count_max) AS processes
    FROM device AS d
    LEFT JOIN rollup_5m AS r
        ON
            d.cluster = r.cluster
            AND d.device = r.device
            AND r.bucket >= $until::TIMESTAMP - to_seconds($back_s)
            AND r.bucket < $until::TIMESTAMP
    WHERE
        d.cluster = $cluster
        AND d.node IN (SELECT unnest($nodes))
        AND d.last_seen >= $until::TIMESTAMP - to_seconds($back_s)
    GROUP BY d.cluster, d.node, d.device
)

SELECT
    node,
    CASE WHEN count(*) = count(processes) THEN sum(processes)::INTEGER END AS processes
FROM seen
GROUP BY node
ORDER BY node
