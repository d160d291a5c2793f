-- The ledger's totals per hour and day equal the sums of its rows, dollars exactly.
WITH both_sides AS (
    SELECT
        '1h' AS period,
        cluster,
        date_trunc('hour', bucket) AS bucket,
        namespace,
        state,
        gpu_seconds AS ledger_gpu_s,
        usd AS ledger_usd,
        usd_gpu AS ledger_usd_gpu,
        0 AS total_gpu_s,
        0::DECIMAL(18, 8) AS total_usd,
        0::DECIMAL(18, 8) AS total_usd_gpu
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
    UNION ALL BY NAME
    SELECT
        '1h' AS period,
        cluster,
        bucket,
        namespace,
        state,
        0 AS ledger_gpu_s,
        0 AS ledger_usd,
        0 AS ledger_usd_gpu,
        gpu_seconds AS total_gpu_s,
        usd AS total_usd,
        usd_gpu AS total_usd_gpu
    FROM ledger_1h
    WHERE bucket >= $since AND bucket < $until
    UNION ALL BY NAME
    SELECT
        '1d' AS period,
        cluster,
        date_trunc('day', bucket) AS bucket,
        namespace,
        state,
        gpu_seconds AS ledger_gpu_s,
        usd AS ledger_usd,
        usd_gpu AS ledger_usd_gpu,
        0 AS total_gpu_s,
        0 AS total_usd,
        0 AS total_usd_gpu
    FROM ledger
    WHERE
        bucket >= date_trunc('day', $since::TIMESTAMP)
        AND bucket < date_trunc('day', $until::TIMESTAMP - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY
    UNION ALL BY NAME
    SELECT
        '1d' AS period,
        cluster,
        bucket,
        namespace,
        state,
        0 AS ledger_gpu_s,
        0 AS ledger_usd,
        0 AS ledger_usd_gpu,
        gpu_seconds AS total_gpu_s,
        usd AS total_usd,
        usd_gpu AS total_usd_gpu
    FROM ledger_1d
    WHERE
        bucket >= date_trunc('day', $since::TIMESTAMP)
        AND bucket < date_trunc('day', $until::TIMESTAMP - INTERVAL 1 MICROSECOND) + INTERVAL 1 DAY
)

SELECT
    period,
    cluster,
    bucket,
    namespace,
    state,
    sum(ledger_gpu_s) AS ledger_gpu_s,
    sum(total_gpu_s) AS total_gpu_s,
    sum(ledger_usd) AS ledger_usd,
    sum(total_usd) AS total_usd
FROM both_sides
GROUP BY period, cluster, bucket, namespace, state
HAVING
    coalesce(sum(ledger_usd), 0) <> coalesce(sum(total_usd), 0)
    OR coalesce(sum(ledger_usd_gpu), 0) <> coalesce(sum(total_usd_gpu), 0)
    OR abs(sum(ledger_gpu_s) - sum(total_gpu_s)) > 0.001 + 1e-9 * sum(ledger_gpu_s)
ORDER BY ALL
