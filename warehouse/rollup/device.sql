-- Devices of a stretch that are new, or whose samples are newer or older than the table's
-- (`sampled_devices.py`). A device weighs one GPU; a MIG instance weighs its compute slices (the
-- first digit of its profile) over those of its GPU model. `concat` hides the keys of the table
-- from the lake, which would first search the statistics of its few files: twice the time.
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
FROM sampled_device AS n
LEFT JOIN model AS m ON n.model = m.model
LEFT JOIN device AS d ON n.cluster = concat(d.cluster) AND n.device = concat(d.device)
WHERE
    d.weight IS NULL
    OR n.last_seen > d.last_seen
    OR n.first_seen < d.first_seen
