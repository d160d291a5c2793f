-- What notebook servers reported between given times: sums per part of a stretch and per time by
-- which they were known ($first + k * $step us, k from -$lead on).
SELECT
    s.member,
    greatest(floor((epoch_us(n.ts) - $first) / $step)::BIGINT + 1, -$lead) AS k,
    count(*) AS servers_n,
    count(*) FILTER (WHERE n.busy_kernels > 0) AS busy_n,
    count(n.busy_kernels) AS kernel_n,
    max(epoch_us(n.ts)) FILTER (WHERE n.busy_kernels > 0) AS busy_us,
    max(epoch_us(n.ts)) FILTER (WHERE n.is_unknown) AS unknown_activity_us,
    max(epoch_us(n.last_kernel_activity)) AS last_kernel_us,
    max(epoch_us(n.last_terminal_activity)) AS last_terminal_us,
    max(epoch_us(greatest(n.last_activity, n.last_kernel_activity)) - epoch_us(n.ts)) AS ahead_us
FROM part AS s
INNER JOIN notebook_activity AS n
    ON
        s.cluster = n.cluster AND s.namespace = n.namespace AND s.pod = n.pod
        AND s.start_at < n.ts AND s.end_at > n.ts
WHERE n.ts >= $since AND n.ts < $until
GROUP BY ALL
ORDER BY s.member, k
