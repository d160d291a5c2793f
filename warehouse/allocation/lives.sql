-- Pods that may have lived in the window. A life is known when the inventory says when the pod
-- was admitted; it lasts to the pod's end, or as long as the inventory or telemetry sees it. One
-- that waits still may have begun since it was seen, but not before it was made.
-- Pods that ended in the hour before are named too: their series linger.
-- A source without UIDs hashes the name: beside the real UID of the same life it is left out.
WITH named AS (
    SELECT
        p.cluster,
        p.uid,
        p.namespace,
        p.pod,
        p.node,
        p.gpu_resource,
        p.gpu_request,
        p.gpu_mem_request_bytes,
        p.gpu_core_request_pct,
        p.devices,
        p.labels,
        coalesce(p.workload_kind, 'Pod') AS workload_kind,
        coalesce(p.workload, p.pod) AS workload,
        coalesce(p.team, p.namespace) AS team,
        coalesce(p.scheduled_at, p.started_at) AS life_start,
        CASE WHEN p.phase = 'Pending' THEN p.created_at END AS made_at,
        coalesce(p.finished_at, p.last_seen) AS life_end,
        p.finished_at IS NOT null AS ended,
        p.namespace IN (SELECT unnest($holder_namespaces)) AS holder,
        p.uid = left(sha256(concat_ws('/', p.cluster, p.namespace, p.pod)), 32) AS hashed
    FROM pod AS p
    WHERE
        (p.finished_at IS null OR p.finished_at > $since::TIMESTAMP - INTERVAL 1 HOUR)
        AND coalesce(p.scheduled_at, p.started_at, $since) < $until
),

doubles AS (
    SELECT DISTINCT
        h.cluster,
        h.uid
    FROM named AS h
    INNER JOIN named AS r
        ON h.cluster = r.cluster AND h.namespace = r.namespace AND h.pod = r.pod
    WHERE
        h.hashed AND NOT r.hashed
        AND coalesce(h.life_start, $since) < coalesce(r.life_end, $until)
        AND coalesce(r.life_start, $since) < coalesce(h.life_end, $until)
)

SELECT n.* EXCLUDE (hashed)
FROM named AS n
ANTI JOIN doubles AS d ON n.cluster = d.cluster AND n.uid = d.uid
