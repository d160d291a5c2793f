-- When each case's workload was next in use after its stretch: its devices computed for a minute of
-- an hour (or of five minutes), a kernel or terminal was active, or a request was served.
WITH cases AS (
    SELECT
        h.case_id,
        h.cluster,
        h.namespace,
        h.workload_kind,
        h.workload,
        make_timestamp(h.since) AS since_at -- noqa: RF01
    FROM (
        SELECT
            unnest(
                from_json(
                    $cases,
                    '[{
                        "case_id": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                        "workload_kind": "VARCHAR", "workload": "VARCHAR", "since": "BIGINT"
                    }]'
                )
            ) AS h
    ) AS listed
),

allocations AS (
    SELECT
        q.case_id,
        a.cluster,
        a.device,
        a.namespace,
        a.pod,
        greatest(q.since_at, a.start) AS since_at,
        coalesce(a."end", $until) AS until_at
    FROM cases AS q
    INNER JOIN allocation AS a
        ON
            q.cluster = a.cluster AND q.namespace = a.namespace
            AND q.workload_kind = a.workload_kind AND q.workload = a.workload
    WHERE coalesce(a."end", $until) > q.since_at AND a.start < $until
),

rolled AS (
    SELECT
        cluster,
        device,
        bucket,
        bucket + INTERVAL 1 HOUR AS end_at
    FROM rollup_1h
    WHERE $hourly AND bucket >= $since AND bucket < $until AND low_s + busy_s >= 60
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        bucket,
        bucket + INTERVAL 5 MINUTE AS end_at
    FROM rollup_5m
    WHERE NOT $hourly AND bucket >= $since AND bucket < $until AND low_s + busy_s >= 60
),

computed AS (
    SELECT
        h.case_id,
        min(greatest(r.bucket, h.since_at)) AS used_at
    FROM allocations AS h
    INNER JOIN rolled AS r
        ON
            h.cluster = r.cluster AND h.device = r.device
            AND h.until_at > r.bucket AND h.since_at < r.end_at
    GROUP BY h.case_id
),

pods AS (
    SELECT DISTINCT
        case_id,
        cluster,
        namespace,
        pod,
        since_at
    FROM allocations
),

worked AS (
    SELECT
        p.case_id,
        min(
            CASE
                WHEN n.busy_kernels > 0 THEN n.ts
                WHEN n.last_kernel_activity > p.since_at THEN n.last_kernel_activity
                ELSE n.last_terminal_activity
            END
        ) AS used_at
    FROM pods AS p
    INNER JOIN notebook_sample AS n
        ON p.cluster = n.cluster AND p.namespace = n.namespace AND p.pod = n.pod
    WHERE
        n.ts > p.since_at AND n.ts >= $since AND n.ts < $until
        AND (
            n.busy_kernels > 0 OR n.last_kernel_activity > p.since_at
            OR n.last_terminal_activity > p.since_at
        )
    GROUP BY p.case_id
    UNION ALL BY NAME
    SELECT
        p.case_id,
        min(s.ts) AS used_at
    FROM pods AS p
    INNER JOIN serving_load AS s
        ON p.cluster = s.cluster AND p.namespace = s.namespace AND p.pod = s.pod
    WHERE s.ts > p.since_at AND s.ts >= $since AND s.ts < $until AND s.is_requested
    GROUP BY p.case_id
)

SELECT
    case_id,
    epoch_us(min(used_at)) AS used_us
FROM (
    SELECT * FROM computed
    UNION ALL BY NAME
    SELECT * FROM worked
) AS both_ways
GROUP BY case_id
ORDER BY case_id
