-- Keep the devices: newest words win, null never overwrites; a device stands for one GPU, an
-- instance for its compute slices of the model's (the leading digit of its profile).
MERGE INTO device AS d
USING (
    SELECT
        n.*,
        m.gpu_model,
        CASE
            WHEN n.parent IS NULL AND n.profile IS NULL THEN 1.0
            ELSE coalesce(
                TRY_CAST(regexp_extract(n.profile, '^(\d+)', 1) AS DOUBLE)
                / coalesce(m.mig_slices, 7),
                1.0
            )
        END AS weight
    FROM seen AS n
    LEFT JOIN model AS m ON n.model = m.model
) AS s
    ON d."cluster" = s."cluster" AND d.device = s.device
WHEN MATCHED AND (
    s.last_seen > d.last_seen OR s.first_seen < d.first_seen
    OR d.last_seen IS NULL OR d.first_seen IS NULL
    OR d.weight IS NULL OR s.memory_bytes > coalesce(d.memory_bytes, 0)
) THEN UPDATE SET
    first_seen = least(d.first_seen, s.first_seen),
    last_seen = greatest(d.last_seen, s.last_seen),
    memory_bytes = greatest(d.memory_bytes, s.memory_bytes),
    parent = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.parent, d.parent) ELSE coalesce(d.parent, s.parent) END,
    node = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.node, d.node) ELSE coalesce(d.node, s.node) END,
    vendor = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.vendor, d.vendor) ELSE coalesce(d.vendor, s.vendor) END,
    model = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.model, d.model) ELSE coalesce(d.model, s.model) END,
    gpu_model = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.gpu_model, d.gpu_model) ELSE coalesce(d.gpu_model, s.gpu_model) END,
    profile = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.profile, d.profile) ELSE coalesce(d.profile, s.profile) END,
    weight = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN s.weight ELSE coalesce(d.weight, s.weight) END,
    interval_s = CASE WHEN s.last_seen >= coalesce(d.last_seen, s.last_seen)
        THEN coalesce(s.interval_s, d.interval_s) ELSE coalesce(d.interval_s, s.interval_s) END
WHEN NOT MATCHED THEN INSERT BY NAME
