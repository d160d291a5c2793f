-- The fleet by state over whole hours: GPU-hours and dollars.
WITH ledger_rows AS (
    SELECT
        bucket,
        state,
        gpu_seconds,
        usd,
        priced
    FROM ledger
    WHERE bucket >= $since::TIMESTAMP AND bucket < $until::TIMESTAMP AND cluster = $cluster
),

hours AS (SELECT count(DISTINCT bucket) AS n FROM ledger_rows)

SELECT
    state,
    sum(gpu_seconds) AS gpu_seconds,
    coalesce(sum(gpu_seconds) FILTER (WHERE NOT priced), 0) AS unpriced,
    coalesce(sum(usd), 0) AS usd,
    any_value(hours.n) AS hours
FROM ledger_rows
CROSS JOIN hours
GROUP BY state
