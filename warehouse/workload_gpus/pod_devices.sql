-- The devices allocated to each pod that an exporter reports: in evidence until three of its
-- intervals after it was last seen. Shared devices count as whole devices here. Where telemetry
-- names no pods, the pod may hold devices without telemetry: its shares are of these too.
WITH
-- A source without UIDs hashes the name: an allocation has the pod's UID or this hash.
pod_uids AS (
    SELECT
        pod_number,
        cluster,
        uid
    FROM workload_pods
    UNION
    SELECT
        pod_number,
        cluster,
        left(sha256(concat_ws('/', cluster, namespace, pod)), 32) AS uid
    FROM workload_pods
)

SELECT
    b.pod_number,
    a.start,
    a."end",
    CASE
        WHEN a.rule = 'request' THEN coalesce(a.share, 1.0) * coalesce(d.weight, 1.0)
        ELSE coalesce(d.weight, 1.0)
    END AS gpus,
    greatest(a.start, d.first_seen) AS seen_from,
    d.last_seen + to_milliseconds((3000 * coalesce(d.interval_s, 60))::BIGINT) AS seen_until
FROM pod_uids AS b
INNER JOIN allocation AS a ON b.cluster = a.cluster AND b.uid = a.pod_uid
INNER JOIN device AS d ON a.cluster = d.cluster AND a.device = d.device
