-- The clusters of devices, nodes and pods, and whether they have devices.
SELECT
    cluster,
    bool_or(has_telemetry) AS has_telemetry
FROM (
    SELECT
        cluster,
        true AS has_telemetry
    FROM device
    UNION ALL BY NAME
    SELECT
        cluster,
        false AS has_telemetry
    FROM node
    UNION ALL BY NAME
    SELECT
        cluster,
        false AS has_telemetry
    FROM pod
) AS listed
GROUP BY cluster
ORDER BY cluster
