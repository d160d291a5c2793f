-- What was restated in the months that [$since, $until) touches.
SELECT
    cluster,
    month,
    cause,
    state,
    accounted_at,
    accounted_at >= month + INTERVAL 1 MONTH AS is_ended,
    gpu_seconds_before / 3600 AS gpu_hours_before,
    gpu_seconds_after / 3600 AS gpu_hours_after,
    usd_before::DOUBLE AS usd_before,
    usd_after::DOUBLE AS usd_after
FROM restatement
WHERE
    cause NOT IN ('due', 'none')
    AND month < $until AND month + INTERVAL 1 MONTH > $since
    AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
ORDER BY month, cluster, cause, state
