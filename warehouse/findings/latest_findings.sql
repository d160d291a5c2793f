-- The findings of each analyzer's last run, per cluster. A run without findings has no rows in
-- `finding`, but the table `plugin_run` has the run. A run that failed or was withheld decided
-- nothing, so the findings of the run before it stay valid.
WITH judged AS (
    SELECT
        plugin AS analyzer,
        max(ts) AS judged_at
    FROM plugin_run
    WHERE kind = 'analyzer' AND result = 'done'
    GROUP BY plugin
),

last AS (
    SELECT
        analyzer,
        cluster,
        max(found_at) AS found_at
    FROM finding
    GROUP BY analyzer, cluster
)

SELECT
    f.id,
    f.analyzer,
    f.kind,
    f.cluster,
    f.namespace,
    f.workload_kind,
    f.workload,
    f.start,
    f."end",
    f.found_at,
    f.verdict,
    f.evidence,
    f.gpu_hours,
    f.usd,
    f.document
FROM finding AS f
INNER JOIN last
    ON
        f.analyzer = last.analyzer
        AND f.cluster = last.cluster
        AND f.found_at = last.found_at
LEFT JOIN judged AS j ON f.analyzer = j.analyzer
WHERE coalesce(f.found_at >= j.judged_at, true)
