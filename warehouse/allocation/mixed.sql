-- Devices that telemetry saw in several hands (nobody's counts) where a pod's life is unknown:
-- only there must the buckets themselves say when the device changed hands.
SELECT DISTINCT
    m.cluster,
    m.device
FROM matched AS m
INNER JOIN seen AS s ON m.cluster = s.cluster AND m.device = s.device
WHERE m.life_start IS null AND (m.namespace <> s.namespace OR m.pod <> s.pod)
