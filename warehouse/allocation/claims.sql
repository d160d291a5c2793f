-- Which pod claims what share of which device when, with its owner. The share is what the source
-- reports; for HAMi the greater of core share and memory share; for KAI the requested fraction;
-- otherwise the whole device. The owner of a pod that no inventory has is unresolved: its kind is
-- not known. A pod that is named on more devices than it requests gets what others leave (turn 2).
WITH stretches AS (
    SELECT h.* REPLACE (CASE WHEN x.pod_uid IS null THEN h.turn ELSE 2 END AS turn)
    FROM best_evidence AS h
    LEFT JOIN excessive AS x ON h.cluster = x.cluster AND h.pod_uid = x.pod_uid
    ANTI JOIN users AS u
        ON h.cluster = u.cluster AND h.device = u.device AND h.pod_uid = u.holder_uid
    UNION ALL
    SELECT * EXCLUDE (holder_uid) FROM users
    WHERE start_at < end_at
    UNION ALL
    SELECT * FROM unnamed
),

requested AS (
    SELECT
        s.*,
        l.workload_kind,
        l.workload,
        l.team,
        d.parent,
        coalesce(
            s.share,
            CASE
                WHEN coalesce(l.gpu_core_request_pct, l.gpu_mem_request_bytes) IS NOT null
                    THEN greatest(
                        l.gpu_core_request_pct / 100, l.gpu_mem_request_bytes / d.memory_bytes
                    )
                WHEN l.gpu_request < coalesce(d.weight, 1) - 1e-6
                    THEN l.gpu_request / coalesce(d.weight, 1)
            END
        ) AS requested_share
    FROM stretches AS s
    LEFT JOIN lives AS l ON s.cluster = l.cluster AND s.pod_uid = l.uid
    LEFT JOIN device AS d ON s.cluster = d.cluster AND s.device = d.device
)

SELECT
    cluster,
    device,
    pod_uid,
    start_at,
    end_at,
    namespace,
    pod,
    coalesce(workload_kind, 'unresolved') AS workload_kind,
    coalesce(workload, pod) AS workload,
    coalesce(team, namespace) AS team,
    CASE WHEN requested_share > 0 THEN least(1, requested_share) ELSE 1 END AS share,
    turn,
    CASE
        WHEN rule IN ('request', 'time-slicing', 'annotation') THEN 'estimated'
        WHEN rule = 'holder' AND requested_share IS null THEN 'estimated'
        ELSE 'exact'
    END AS attribution,
    CASE
        WHEN rule IN ('telemetry', 'listed', 'annotation') AND requested_share < 1 THEN 'fraction'
        WHEN rule = 'telemetry' AND parent IS NOT null THEN 'mig'
        ELSE rule
    END AS rule
FROM requested
