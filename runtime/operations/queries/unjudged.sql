-- Workloads with unknown time, and how much of it is unknown because the signals contradict each
-- other.
WITH unknown AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        sum(gpu_seconds) / 3600.0 AS gpu_hours
    FROM ledger
    WHERE
        state = 'unknown'
        AND workload != ''
        AND bucket >= date_trunc('hour', $since::TIMESTAMP)
        AND bucket < $until::TIMESTAMP
        AND ($cluster::VARCHAR IS NULL OR cluster = $cluster)
    GROUP BY cluster, namespace, workload_kind, workload
),

owner AS (
    SELECT DISTINCT
        cluster,
        namespace,
        pod,
        workload_kind,
        workload
    FROM allocation
    WHERE start < $until::TIMESTAMP AND "end" > $since::TIMESTAMP
),

contradicted AS (
    SELECT
        owner.cluster,
        owner.namespace,
        owner.workload_kind,
        owner.workload,
        sum(r.conflict_s) / 3600.0 AS device_hours
    FROM rollup_1h AS r
    INNER JOIN owner
        ON
            r.cluster = owner.cluster
            AND r.namespace = owner.namespace
            AND r.pod = owner.pod
    WHERE
        r.conflict_s > 0
        AND r.bucket >= date_trunc('hour', $since::TIMESTAMP)
        AND r.bucket < $until::TIMESTAMP
    GROUP BY ALL
)

SELECT
    unknown.*,
    coalesce(contradicted.device_hours, 0) AS conflict_device_hours
FROM unknown
LEFT JOIN contradicted
    ON
        unknown.cluster = contradicted.cluster
        AND unknown.namespace = contradicted.namespace
        AND unknown.workload_kind = contradicted.workload_kind
        AND unknown.workload = contradicted.workload
WHERE unknown.gpu_hours >= 0.05
ORDER BY unknown.gpu_hours DESC, unknown.namespace ASC, unknown.workload ASC
