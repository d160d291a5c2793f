-- What the notebook servers said during each stretch. An idle kernel's or terminal's age is
-- counted at the last look; a busy kernel is busy whatever its age (idle-culler issue 55). A cell
-- that ran for a moment long ago is told by its share of the looks and when it was last seen.
SELECT
    s.span,
    count(*) AS looks,
    count(DISTINCT n.pod) AS pods,
    avg((n.busy_kernels > 0)::INTEGER) AS busy_share,
    max(epoch_us(n.ts)) FILTER (WHERE n.busy_kernels > 0) AS busy_us,
    count(n.busy_kernels) AS kernel_looks,
    max(n.terminals) AS terminals,
    max(epoch_us(n.last_kernel_activity)) AS last_kernel_us,
    max(epoch_us(n.last_terminal_activity)) AS last_terminal_us,
    max(epoch_us(greatest(n.last_activity, n.last_kernel_activity)) - epoch_us(n.ts)) AS ahead_us
FROM idle_span AS s
INNER JOIN notebook_sample AS n
    ON
        s.cluster = n.cluster AND s.namespace = n.namespace AND s.pod = n.pod
        AND s.start_at < n.ts AND s.end_at > n.ts
WHERE n.ts >= $since AND n.ts < $until
GROUP BY s.span
ORDER BY s.span
