-- Every pod of the workloads in question, with the time in which it was pending: from its creation
-- until it started, ended or was no longer listed. `started_at` is when the kubelet accepted the
-- pod: it is still Pending while its images are pulled. A workload is named by a JSON list.
WITH named AS (
    SELECT
        w.owner,
        w.cluster,
        w.namespace,
        w.workload_kind,
        w.workload
    FROM (
        SELECT
            unnest(
                from_json(
                    $workloads,
                    '[{
                        "owner": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                        "workload_kind": "VARCHAR", "workload": "VARCHAR"
                    }]'
                )
            ) AS w
    ) AS listed
)

SELECT
    n.owner,
    epoch_us(coalesce(p.created_at, p.first_seen)) AS created_us,
    epoch_us(p.started_at) AS started_us,
    epoch_us(
        coalesce(
            CASE WHEN p.phase IS DISTINCT FROM 'Pending' THEN p.started_at END,
            p.finished_at,
            p.deleted_at,
            CASE
                WHEN p.phase = 'Pending' AND p.last_seen >= $until - INTERVAL 10 MINUTE THEN $until
                ELSE p.last_seen
            END
        )
    ) AS waited_until_us
FROM named AS n
INNER JOIN pod AS p
    ON
        n.cluster = p.cluster AND n.namespace = p.namespace
        AND n.workload_kind = p.workload_kind AND n.workload = p.workload
WHERE coalesce(p.created_at, p.first_seen) < $until
ORDER BY n.owner, created_us
