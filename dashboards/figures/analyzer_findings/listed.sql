-- The findings of one analyzer's last run in the window, the most expensive first.
SELECT
    f.id,
    f.kind,
    f.cluster,
    f.namespace,
    f.workload_kind,
    f.workload,
    f.start,
    f."end",
    f.found_at,
    f.evidence,
    f.gpu_hours,
    f.usd,
    (f.document -> '$.details')::VARCHAR AS details,
    f.document ->> '$.recommendations[0].verb' AS verb,
    f.document ->> '$.recommendations[0].why' AS advice,
    f.document ->> '$.recommendations[0].caution' AS caution,
    coalesce(f.document ->> '$.subject.models[*]', []) AS models
FROM latest_findings AS f
WHERE
    f.analyzer = $analyzer
    AND f.start < $until AND f."end" > $since
    AND ($cluster::VARCHAR IS null OR f.cluster = $cluster)
    AND ($namespace::VARCHAR IS null OR f.namespace = $namespace)
    AND (
        $team::VARCHAR IS null
        OR CASE
            WHEN f.namespace = '' THEN '(platform)'
            ELSE coalesce(f.document ->> '$.subject.team', f.namespace)
        END = $team
    )
    AND ($model::VARCHAR IS null OR list_contains(models, $model))
ORDER BY f.usd DESC NULLS LAST, f.gpu_hours DESC, f.id ASC
LIMIT $most
