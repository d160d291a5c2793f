-- What the looks of a stretch say about their devices: a device stands for one GPU, an instance for
-- its compute slices (the leading digit of its profile) of the model's.
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
