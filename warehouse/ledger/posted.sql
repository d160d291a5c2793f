-- The answer: states priced. Rows are rounded to 1e-8 dollars and the largest row of a
-- device's bucket takes what rounding left, so that the rows sum to the bucket's price.
WITH priced AS (
    SELECT
        c.*,
        p.as_of,
        c.gpu_seconds / 3600 * p.loaded_usd_h AS raw_usd,
        c.gpu_seconds / 3600 * p.gpu_usd_h AS raw_gpu
    FROM counted AS c
    LEFT JOIN prices AS p
        ON
            c.cluster = p.cluster
            AND c.node IS NOT DISTINCT FROM p.node
            AND c.model IS NOT DISTINCT FROM p.gpu_model
            AND c.bucket = p.bucket
),

rounded AS (
    SELECT
        *,
        raw_usd::DECIMAL(18, 8) AS usd,
        raw_gpu::DECIMAL(18, 8) AS usd_gpu,
        sum(raw_usd) OVER whole::DECIMAL(18, 8) AS whole_usd,
        sum(raw_gpu) OVER whole::DECIMAL(18, 8) AS whole_gpu,
        row_number() OVER (
            PARTITION BY cluster, device, bucket
            ORDER BY gpu_seconds DESC, state ASC, namespace ASC, workload_kind ASC, workload ASC
        ) = 1 AS largest
    FROM priced
    WINDOW whole AS (PARTITION BY cluster, device, bucket)
),

fitted AS (
    SELECT
        *,
        whole_usd - sum(usd) OVER whole AS rest_usd,
        whole_gpu - sum(usd_gpu) OVER whole AS rest_gpu
    FROM rounded
    WINDOW whole AS (PARTITION BY cluster, device, bucket)
)

SELECT
    cluster,
    bucket,
    device,
    state,
    namespace,
    workload_kind,
    workload,
    team,
    node,
    pool,
    model,
    seconds,
    gpu_seconds,
    (usd + CASE WHEN largest THEN rest_usd ELSE 0 END)::DECIMAL(18, 8) AS usd,
    (usd_gpu + CASE WHEN largest THEN rest_gpu ELSE 0 END)::DECIMAL(18, 8) AS usd_gpu,
    usd IS NOT null AS priced,
    as_of AS price_as_of
FROM fitted
