-- Rises of spend and of waste, the most expensive first; the document has the whole finding.
SELECT
    f.id,
    f.kind,
    f.cluster,
    CASE WHEN f.workload_kind = 'Team' THEN f.workload ELSE f.namespace END AS name,
    f.start,
    f."end",
    f.gpu_hours,
    f.usd,
    f.document ->> '$.details.why' AS why,
    f.document ->> '$.details.seen_by' AS seen_by,
    f.document ->> '$.details.unit' AS unit,
    (f.document ->> '$.details.actual')::DOUBLE AS actual,
    (f.document ->> '$.details.usual')::DOUBLE AS usual,
    (f.document ->> '$.details.change')::DOUBLE AS change,
    (f.document ->> '$.details.weeks_compared')::INTEGER AS weeks_compared,
    (f.document -> '$.details.because')::VARCHAR AS reasons
FROM latest_findings AS f
WHERE
    f.analyzer = 'anomalies'
    AND f.start < $until AND f."end" > $since
    AND ($cluster::VARCHAR IS null OR f.cluster = $cluster)
    AND (
        $team::VARCHAR IS null
        OR CASE WHEN f.workload_kind = 'Team' THEN f.workload ELSE f.namespace END = $team
    )
ORDER BY f.usd DESC NULLS LAST, f.gpu_hours DESC, f.id ASC
