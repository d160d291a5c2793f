-- Each hour of the ledger by team and namespace: whole GPU-microseconds and hundred-millionths of a
-- dollar, so that sums of sums are exact. Unallocated hours show how much of a fleet has data.
WITH states AS (
    -- First few sums over many rows: a quarter less time than all sums over every row.
    SELECT
        cluster,
        team,
        namespace,
        model,
        bucket,
        state,
        priced,
        sum(gpu_seconds) AS gpu_seconds,
        sum(usd) AS usd
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
    GROUP BY ALL
)

SELECT
    cluster,
    CASE WHEN namespace = '' THEN '' ELSE coalesce(team, '') END AS team,
    namespace,
    CASE WHEN namespace = '' THEN '' ELSE coalesce(model, '') END AS model,
    epoch(date_trunc('hour', bucket))::BIGINT // 3600 AS hour,
    round(sum(gpu_seconds) * 1e6)::BIGINT AS allocated,
    round(coalesce(sum(gpu_seconds) FILTER (WHERE state IN ('idle', 'lost')), 0) * 1e6)::BIGINT
        AS wasted,
    round(coalesce(sum(gpu_seconds) FILTER (WHERE state = 'unknown'), 0) * 1e6)::BIGINT
        AS unknown,
    round(coalesce(sum(gpu_seconds) FILTER (WHERE NOT priced), 0) * 1e6)::BIGINT AS unpriced,
    (coalesce(sum(usd), 0) * 100000000)::BIGINT AS usd,
    (coalesce(sum(usd) FILTER (WHERE state IN ('idle', 'lost')), 0) * 100000000)::BIGINT
        AS wasted_usd
FROM states
GROUP BY ALL
ORDER BY ALL
