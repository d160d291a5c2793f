-- Which part of the hours of a node's devices commitments paid, and which part of their dollars,
-- fully loaded and of the GPU alone.
SELECT
    d.cluster,
    d.node,
    d.model,
    greatest(k.from_at, t.from_at) AS from_at,
    least(k.to_at, t.to_at) AS to_at,
    t.committed,
    t.committed_usd_h / t.loaded_usd_h AS committed_usd,
    t.committed_gpu_usd_h / nullif(t.gpu_usd_h, 0) AS committed_usd_gpu
FROM device_places AS d
INNER JOIN subjects AS k ON d.device_id = k.device_id
INNER JOIN stretches AS t ON k.kind = t.kind AND k.to_at > t.from_at AND k.from_at < t.to_at
WHERE t.committed > 0
