-- The prices that other homes over the catalog stored, of every source.
SELECT
    source,
    cluster,
    node_usd_h,
    gpu_usd_h,
    gpu_count,
    gpu_model,
    provider,
    instance_type,
    region,
    zone,
    term,
    nodes,
    valid_from,
    valid_to
FROM rate
WHERE list_contains($others, home)
