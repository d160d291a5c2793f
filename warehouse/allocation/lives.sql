-- Pods that may have run in the window, with their lifetimes. The start of a lifetime is known when
-- the inventory has the pod's admission time. The lifetime ends with the pod, or when the inventory
-- and telemetry last saw it. A pending pod may have started after the inventory last saw it, but no
-- lifetime starts before its pod was created: an earlier scheduling time belongs to an earlier pod
-- with the same name.
-- Pods that ended before the window are included where an exporter still names them, however long
-- ago that was: such a name is no evidence of a holder (`matched.sql`). A source without UIDs uses
-- a hash of the name, or of the name and the creation time. Such a row is left out where a row with
-- a better identity describes the same lifetime.
-- Two pods never have one name at the same time: a lifetime ends when the next pod with its name
-- starts.
-- `unseen` = a later list of its cluster does not have the pod: it ended when it was last seen.
-- `requests_none` = the inventory knows that the pod requests no GPU. `claim/hami` (rows of older
-- versions) is no request: only an annotation supports it.
WITH lists AS (
    SELECT
        cluster,
        max(last_seen) AS last_list
    FROM pod
    GROUP BY cluster
),

named AS (
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
        p.created_at,
        p.workload_kind,
        p.workload,
        p.paying_team AS team,
        CASE
            WHEN coalesce(p.scheduled_at, p.started_at) IS NOT null
                THEN greatest(coalesce(p.scheduled_at, p.started_at), p.created_at)
        END AS life_start,
        CASE WHEN p.phase = 'Pending' THEN p.created_at END AS made_at,
        coalesce(p.finished_at, p.last_seen) AS life_end,
        p.finished_at IS NOT null AS ended,
        p.last_seen < l.last_list - INTERVAL 10 MINUTE AS unseen,
        p.namespace IN (SELECT unnest($holder_namespaces)) AS holder,
        (
            p.gpu_request = 0
            AND p.namespace NOT IN (SELECT unnest($holder_namespaces))
        )
        OR coalesce(p.gpu_resource = 'claim/hami', false) AS requests_none,
        coalesce(
            greatest(coalesce(p.scheduled_at, p.started_at), p.created_at), p.first_seen
        ) AS begun_at,
        CASE p.uid
            WHEN left(sha256(concat_ws('/', p.cluster, p.namespace, p.pod)), 32) THEN 0
            WHEN
                left(
                    sha256(
                        concat_ws(
                            '/',
                            p.cluster,
                            p.namespace,
                            p.pod,
                            round(epoch(p.created_at))::BIGINT
                        )
                    ),
                    32
                )
                THEN 1
            ELSE 2
        END AS certainty
    FROM pod_owners AS p
    INNER JOIN lists AS l ON p.cluster = l.cluster
    WHERE
        (
            p.finished_at IS null
            OR p.finished_at > $since::TIMESTAMP - INTERVAL 1 HOUR
            OR (p.cluster, p.namespace, p.pod) IN (
                SELECT (s.cluster, s.namespace, s.pod) FROM seen AS s
                UNION ALL
                SELECT (h.cluster, h.namespace, h.pod) FROM holding AS h
                WHERE h.ts >= $since AND h.ts < $until
            )
        )
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
        h.certainty < r.certainty
        AND coalesce(h.life_start, $since) < coalesce(r.life_end, $until)
        AND coalesce(r.life_start, $since) < coalesce(h.life_end, $until)
),

single AS (
    SELECT
        n.*,
        lead(n.begun_at) OVER name_used AS next_begun,
        lead(n.created_at) OVER name_used AS next_created
    FROM named AS n
    ANTI JOIN doubles AS d ON n.cluster = d.cluster AND n.uid = d.uid
    WINDOW
        name_used AS (
            PARTITION BY n.cluster, n.namespace, n.pod ORDER BY n.begun_at, n.created_at, n.uid
        )
),

cut AS (
    SELECT
        *,
        CASE
            WHEN next_created > begun_at THEN next_created
            WHEN next_begun > begun_at THEN next_begun
        END AS replaced_at
    FROM single
)

SELECT
    * EXCLUDE (
        created_at, begun_at, certainty, next_begun, next_created, replaced_at, life_end, ended
    ),
    least(life_end, replaced_at) AS life_end,
    ended OR replaced_at IS NOT null AS ended
FROM cut
