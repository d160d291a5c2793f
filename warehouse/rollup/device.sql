-- Devices of a stretch that are new, or whose samples are newer or older than the table's. The
-- newest sample's labels win. A device weighs one GPU; a MIG instance weighs its compute slices
-- (the first digit of its profile) over those of its GPU model.
WITH seen AS (
    SELECT
        s.cluster,
        s.device,
        arg_max(s.parent, s.at_us) AS parent,
        arg_max(s.node, s.at_us) AS node,
        arg_max(s.vendor, s.at_us) AS vendor,
        arg_max(s.model, s.at_us) AS model,
        arg_max(s.profile, s.at_us) AS profile,
        max(s.mem_used_bytes + s.mem_free_bytes + coalesce(s.mem_reserved_bytes, 0))
            AS memory_bytes,
        arg_max(s.interval_s, s.at_us) AS interval_s,
        make_timestamp(min(s.at_us)) AS first_seen,
        make_timestamp(
            max(s.at_us + (coalesce(s.interval_s, $unknown_interval_s) * 1000000)::BIGINT)
        ) AS last_seen
    FROM device_sample AS s
    WHERE s.at_us >= epoch_us($first) AND s.at_us < epoch_us($last)
    GROUP BY s.cluster, s.device
)

SELECT
    n.cluster,
    n.device,
    n.parent,
    n.node,
    n.vendor,
    n.model,
    m.gpu_model,
    n.profile,
    CASE
        WHEN n.parent IS NULL AND n.profile IS NULL THEN 1.0
        ELSE coalesce(
            try_cast(regexp_extract(n.profile, '^(\d+)', 1) AS DOUBLE)
            / coalesce(m.mig_slices, 7),
            1.0
        )
    END AS weight,
    n.memory_bytes,
    n.interval_s,
    n.first_seen,
    n.last_seen
FROM seen AS n
LEFT JOIN model AS m ON n.model = m.model
LEFT JOIN device AS d ON n.cluster = d.cluster AND n.device = d.device
WHERE
    d.weight IS NULL
    OR n.last_seen > d.last_seen
    OR n.first_seen < d.first_seen
