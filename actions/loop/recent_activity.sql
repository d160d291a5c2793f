-- The most active of the last samples of the devices that a workload holds, or of those named.
WITH workload_devices AS (
    SELECT DISTINCT a.device
    FROM allocation AS a
    WHERE
        a.cluster = $cluster
        AND a.namespace = $namespace
        AND a.workload_kind = $kind
        AND a.workload = $workload
        AND a.start < $until::TIMESTAMP
        AND coalesce(a."end", $until::TIMESTAMP) >= $since::TIMESTAMP
    UNION
    SELECT unnest($devices) AS device
)

SELECT
    s.device,
    s.ts,
    s.activity
FROM active_sample AS s
INNER JOIN workload_devices AS h ON s.device = h.device
WHERE
    s.cluster = $cluster
    AND s.ts >= $since::TIMESTAMP
    AND s.ts <= $until::TIMESTAMP
ORDER BY activity DESC NULLS LAST, s.ts DESC
LIMIT 1
