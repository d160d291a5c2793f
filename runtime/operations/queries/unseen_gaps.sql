-- Gaps between a stored case and a finding without any device sample, while the same pods of the
-- workload kept their devices: telemetry is missing, and nothing shows that the waste had ended.
WITH gap AS (
    SELECT
        unnest($numbers::BIGINT[]) AS number,
        unnest($clusters::VARCHAR[]) AS cluster,
        unnest($kinds::VARCHAR[]) AS workload_kind,
        unnest($namespaces::VARCHAR[]) AS namespace,
        unnest($workloads::VARCHAR[]) AS workload,
        unnest($begins::TIMESTAMP[]) AS since,
        unnest($ends::TIMESTAMP[]) AS until
),

allocated AS (
    SELECT DISTINCT
        gap.number,
        gap.since,
        gap.until,
        a.cluster,
        a.device
    FROM gap
    INNER JOIN pod
        ON
            gap.cluster = pod.cluster
            AND gap.workload_kind = pod.workload_kind
            AND gap.namespace = pod.namespace
            AND gap.workload = pod.workload
            AND gap.since >= coalesce(pod.created_at, pod.first_seen)
            AND gap.until <= pod.last_seen
    INNER JOIN allocation AS a
        ON
            pod.cluster = a.cluster
            AND pod.uid = a.pod_uid
            AND gap.until > a.start
            AND gap.since - INTERVAL 1 HOUR < coalesce(a."end", gap.until)
),

seen AS (
    SELECT DISTINCT allocated.number
    FROM allocated
    INNER JOIN sample
        ON
            allocated.cluster = sample.cluster
            AND allocated.device = sample.device
            AND allocated.since < sample.ts
            AND allocated.until > sample.ts
    WHERE sample.ts >= $since::TIMESTAMP AND sample.ts < $until::TIMESTAMP
)

SELECT DISTINCT number
FROM allocated
WHERE number NOT IN (SELECT seen.number FROM seen)
ORDER BY number
