-- Princeton's rule at every check: a GPU of the job has had only GPU_UTIL 0 since the job began (at
-- least two hours ago), or in the sliding window. The job is cancelled when fewer than $part of its
-- GPUs were used. A GPU without samples has no statistics: then the rule decides nothing about its
-- job.
WITH job AS (
    SELECT
        p.namespace,
        p.pod,
        p.workload_kind,
        p.workload,
        coalesce(p.started_at, p.scheduled_at) AS began,
        coalesce(p.finished_at, p.last_seen) AS over
    FROM pod_owners AS p
)

SELECT
    j.namespace,
    j.workload_kind,
    j.workload,
    s.step
FROM peer_series AS s
INNER JOIN job AS j ON s.namespace = j.namespace AND s.pod = j.pod
WHERE
    make_timestamp((s.step * $every_s * 1e6)::BIGINT)
    BETWEEN j.began + to_seconds($start_s) AND j.over
GROUP BY ALL
HAVING count(*) FILTER (WHERE s.util > 0) < $part * count(*) AND count(*) = count(s.util)
ORDER BY ALL
