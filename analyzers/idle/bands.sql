-- Idle power of each model as the accounting step knew it last in a window: watts, and whether it
-- was learned or is a prior.
SELECT
    d.gpu_model,
    arg_max(r.band_w, r.bucket) AS band_w,
    arg_max(r.band, r.bucket) AS band
FROM signal AS r
INNER JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
WHERE
    r.bucket >= greatest($since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 2 HOUR)
    AND r.bucket < $until AND r.band_w IS NOT NULL
GROUP BY d.gpu_model
ORDER BY d.gpu_model
