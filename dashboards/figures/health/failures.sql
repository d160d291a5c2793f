-- Failures that lost work, per day and cause: pods that lost it, and how much.
SELECT
    date_trunc('day', "end") AS day,
    coalesce(cause, 'unknown') AS cause,
    count(*) AS pods,
    sum(lost) AS gpu_hours
FROM work_lost
WHERE
    "end" >= $since
    AND "end" < $until
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND ($namespace::VARCHAR IS null OR namespace = $namespace)
GROUP BY ALL
ORDER BY day ASC, cause ASC
