-- The capacity of nodes with GPUs: the total that shares are parts of.
SELECT
    cluster,
    sum(gpu_count)::DOUBLE AS gpus,
    sum(cpu_milli) / 1000 AS cpu,
    sum(memory_bytes)::DOUBLE AS memory,
    count(DISTINCT gpu_model) AS models
FROM node
WHERE gpu_count > 0 AND last_seen >= $since::TIMESTAMP AND first_seen < $until::TIMESTAMP
GROUP BY cluster
ORDER BY cluster
