-- Devices where a pod without a known lifetime is missing from buckets in which other pods were
-- seen. Only there do the buckets themselves have to show when the device changed hands. These
-- devices are few: reading them from one list lets the planner know that, and hash them instead of
-- the rollups.
WITH listed_once AS (
    SELECT list(DISTINCT struct_pack(cluster := m.cluster, device := m.device)) AS devices
    FROM matched AS m
    INNER JOIN seen AS s
        ON
            m.cluster = s.cluster AND m.device = s.device
            AND m.last_bucket > s.first_bucket AND m.first_bucket < s.last_bucket
    WHERE
        m.life_start IS null
        AND (m.namespace <> s.namespace OR m.pod <> s.pod)
        AND m.buckets * 300 < epoch(m.last_bucket) - epoch(m.first_bucket) + 300
),

one_by_one AS (
    SELECT unnest(devices) AS mixed
    FROM listed_once
)

SELECT
    mixed.cluster, -- noqa: RF01
    mixed.device -- noqa: RF01
FROM one_by_one
