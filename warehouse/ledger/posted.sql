-- The answer: states priced, numbers made names again. Dollars are rounded along the running sum
-- of a device's bucket, so that its rows sum to its rounded price exactly and no row is off by
-- more than 1e-8.
WITH priced AS (
    SELECT
        c.*,
        p.as_of,
        c.gpu_seconds / 3600 * p.loaded_usd_h AS raw_usd,
        c.gpu_seconds / 3600 * p.gpu_usd_h AS raw_gpu
    FROM counted AS c
    INNER JOIN subjects AS s ON c.device_id = s.device_id
    LEFT JOIN prices AS p ON s.kind = p.kind AND c.bucket = p.bucket
),

running AS (
    SELECT
        *,
        sum(raw_usd) OVER w AS upto_usd,
        sum(raw_gpu) OVER w AS upto_gpu,
        sum(raw_usd) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_usd,
        sum(raw_gpu) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_gpu
    FROM priced
    WINDOW w AS (PARTITION BY device_id, bucket ORDER BY state, holder_id)
)

SELECT
    d.cluster,
    r.bucket,
    d.device,
    r.state,
    h.namespace,
    h.workload_kind,
    h.workload,
    h.team,
    d.node,
    d.pool,
    d.model,
    r.seconds,
    r.gpu_seconds,
    (
        r.upto_usd::DECIMAL(18, 8) - coalesce(r.before_usd, 0)::DECIMAL(18, 8)
    )::DECIMAL(18, 8) AS usd,
    (
        r.upto_gpu::DECIMAL(18, 8) - coalesce(r.before_gpu, 0)::DECIMAL(18, 8)
    )::DECIMAL(18, 8) AS usd_gpu,
    r.raw_usd IS NOT null AS priced,
    r.as_of AS price_as_of
FROM running AS r
INNER JOIN devices AS d ON r.device_id = d.device_id
INNER JOIN holders AS h ON r.holder_id = h.holder_id
