-- GPUs whose last node is one of some, or that are some of a list, with when telemetry showed them.
SELECT
    device,
    coalesce(parent, device) AS gpu,
    coalesce(node, '') AS node,
    first_seen,
    last_seen
FROM device
WHERE
    cluster = $cluster
    AND first_seen <= $until::TIMESTAMP
    AND (
        list_contains($nodes::VARCHAR[], node)
        OR list_contains($devices::VARCHAR[], device)
        OR list_contains($devices::VARCHAR[], parent)
    )
ORDER BY node, device
