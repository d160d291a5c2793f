-- The workloads that held devices or asked for them in the last day: how many devices each holds
-- now, how many of these have samples, the end of the sample that is oldest among their last ones,
-- and the longest interval.
WITH recent AS (
    SELECT
        cluster,
        coalesce(namespace, '') AS namespace,
        coalesce(workload_kind, '') AS workload_kind,
        workload,
        device,
        coalesce("end", $at::TIMESTAMP) >= $ended::TIMESTAMP AS now
    FROM allocation
    WHERE
        start < $at::TIMESTAMP AND coalesce("end", $at::TIMESTAMP) >= $since::TIMESTAMP
        AND workload IS NOT null
    UNION ALL BY NAME
    SELECT DISTINCT
        cluster,
        coalesce(namespace, '') AS namespace,
        coalesce(workload_kind, '') AS workload_kind,
        workload,
        null AS device,
        false AS now
    FROM pod
    WHERE
        first_seen < $at::TIMESTAMP AND last_seen >= $since::TIMESTAMP
        AND gpu_request > 0 AND workload IS NOT null
)

SELECT
    r.cluster,
    r.namespace,
    r.workload_kind,
    r.workload,
    count(DISTINCT r.device) FILTER (WHERE r.now) AS devices,
    count(DISTINCT d.device) FILTER (WHERE r.now AND d.last_seen IS NOT null) AS sampled,
    min(d.last_seen) FILTER (WHERE r.now) AS seen_until,
    max(d.interval_s::DOUBLE) FILTER (WHERE r.now) AS interval_s
FROM recent AS r
LEFT JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
GROUP BY ALL
