-- The hours of the ledger that changes of prices (`change`) concern.
WITH hours AS (
    SELECT DISTINCT
        cluster,
        model,
        priced,
        time_bucket(INTERVAL 1 HOUR, bucket) AS hour
    FROM ledger
)

SELECT
    h.cluster,
    h.hour,
    bool_and(c.is_waiting) AS is_waiting
FROM hours AS h
INNER JOIN change AS c
    ON
        c.cluster IN ('', h.cluster)
        AND c.gpu_model IN ('', coalesce(h.model, c.gpu_model))
        AND h.hour >= date_trunc('hour', c.from_at)
        AND h.hour < c.to_at
        AND NOT (c.is_first AND h.priced)
GROUP BY ALL
