-- The time in which a device exists, cut at the edges of the ledger's buckets.
SELECT
    device_id,
    kind,
    node,
    unnest(
        generate_series(
            time_bucket(to_seconds($step_s), from_at),
            to_at - INTERVAL 1 MICROSECOND,
            to_seconds($step_s)
        )
    ) AS bucket,
    from_at,
    to_at
FROM spans
