-- Nodes that every price must treat alike are one kind.
SELECT
    cluster,
    gpu_model,
    provider,
    region,
    zone,
    instance_type,
    capacity_type,
    gpu_count,
    row_number() OVER () AS kind
FROM subjects
GROUP BY cluster, gpu_model, provider, region, zone, instance_type, capacity_type, gpu_count
