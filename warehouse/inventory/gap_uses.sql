-- Gaps in which a pod had requests, or its notebook server was used.
SELECT DISTINCT g.number
FROM gap_devices AS g
INNER JOIN serving_load AS s
    ON
        g.cluster = s.cluster AND g.namespace = s.namespace AND g.pod = s.pod
        AND g.since < s.ts AND g.until >= s.ts
WHERE s.ts >= $since::TIMESTAMP AND s.ts <= $until::TIMESTAMP AND s.is_requested
UNION
SELECT g.number
FROM gap_devices AS g
INNER JOIN notebook_sample AS n
    ON
        g.cluster = n.cluster AND g.namespace = n.namespace AND g.pod = n.pod
        AND g.since < n.ts AND g.until >= n.ts
WHERE
    n.ts >= $since::TIMESTAMP AND n.ts <= $until::TIMESTAMP
    AND (
        n.busy_kernels > 0
        OR n.last_kernel_activity > g.since
        OR n.last_terminal_activity > g.since
    )
