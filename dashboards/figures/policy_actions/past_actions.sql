-- The actions of the window, their results and savings so far, the newest first.
WITH saved AS (
    SELECT
        cluster,
        action,
        sum(usd) AS usd,
        sum(gpu_hours) AS gpu_hours
    FROM saving
    GROUP BY ALL
)

SELECT
    a.action AS id,
    a.cluster,
    a.ts AS at,
    concat_ws('/', nullif(a.namespace, ''), a.workload_kind, a.workload) AS subject,
    a.owner,
    a.verb,
    a.policy,
    a.result,
    a.why,
    a.actor,
    a.freed_gpus,
    a.restored_by,
    a.restored_at,
    a.ended,
    a.lost,
    s.usd AS saved_usd,
    s.gpu_hours AS saved_gpu_hours,
    a.finding
FROM acted AS a
LEFT JOIN saved AS s ON a.cluster = s.cluster AND a.action = s.action
WHERE
    (
        (a.ts >= $since AND a.ts < $until)
        OR a.result = 'under way'
    )
    AND ($namespace::VARCHAR IS null OR a.namespace = $namespace)
    AND ($team::VARCHAR IS null OR a.owner = $team)
ORDER BY a.ts DESC, a.action ASC
LIMIT $most
