-- The pods of a workload that kept devices through a gap between two of its findings.
WITH gap AS (
    SELECT
        unnest($numbers::BIGINT[]) AS number,
        unnest($clusters::VARCHAR[]) AS cluster,
        unnest($kinds::VARCHAR[]) AS workload_kind,
        unnest($namespaces::VARCHAR[]) AS namespace,
        unnest($workloads::VARCHAR[]) AS workload,
        unnest($begins::TIMESTAMP[]) AS since,
        unnest($ends::TIMESTAMP[]) AS until
)

SELECT DISTINCT
    gap.number,
    gap.since,
    gap.until,
    a.cluster,
    a.device,
    pod.namespace,
    pod.pod
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
