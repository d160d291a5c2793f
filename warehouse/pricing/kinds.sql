-- Each kind of device once.
SELECT DISTINCT
    kind,
    cluster,
    gpu_model,
    provider,
    region,
    zone,
    instance_type,
    capacity_type,
    gpu_count
FROM subjects
