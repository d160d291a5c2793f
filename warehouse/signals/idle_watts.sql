-- A histogram of the power (whole watts) of devices without any work and with a CUDA context, by
-- model and hour: the idle power of a model is learned from it. Hourly rollups are fine enough.
-- Devices without a context use less power and would lower the band; steady light work, which the
-- threshold of idleness lets pass, uses more and would raise it.
SELECT
    d.gpu_model,
    r.bucket,
    least(round(r.power_w_mean)::INTEGER, 2047) AS watts,
    sum(r.power_w_n)::BIGINT AS readings
FROM rollup_1h AS r
INNER JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
WHERE
    r.bucket >= $since AND r.bucket < $until
    AND d.parent IS NULL AND d.gpu_model IS NOT NULL
    AND r.act_max < $least_work - 1e-6 AND coalesce(r.conflict_s, 0) = 0 AND r.power_w_n > 0
    AND coalesce(r.mem_used_bytes_max > 268435456, TRUE)
GROUP BY d.gpu_model, r.bucket, watts
ORDER BY d.gpu_model, r.bucket, watts
