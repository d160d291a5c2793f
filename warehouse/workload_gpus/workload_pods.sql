-- The pods of the requested workloads (a JSON list, numbered) that were bound to a node and hold
-- GPUs. A request of GPU memory without a count is one GPU. A source without UIDs hashes the name:
-- where a row has the real UID of the same lifetime, its row is left out. Many stretches share a
-- workload: pods have a number, so that what follows joins by numbers.
WITH requested AS (
    SELECT
        s.workload_number,
        s.cluster,
        s.namespace,
        s.workload_kind,
        s.workload
    FROM (
        SELECT
            unnest(
                from_json(
                    $workloads,
                    '[{
                        "workload_number": "BIGINT", "cluster": "VARCHAR", "namespace": "VARCHAR",
                        "workload_kind": "VARCHAR", "workload": "VARCHAR"
                    }]'
                )
            ) AS s
    ) AS listed
),

inventory AS (
    SELECT
        cluster,
        max(last_seen) AS last_list
    FROM pod
    GROUP BY cluster
),

candidates AS (
    SELECT
        w.workload_number,
        p.cluster,
        p.uid,
        p.namespace,
        p.pod,
        p.node,
        p.finished_at,
        p.last_seen,
        i.last_list,
        coalesce(p.gpu_request, CASE WHEN p.gpu_resource IS NOT null THEN 1.0 END, 0.0) AS gpus,
        coalesce(p.scheduled_at, p.started_at, p.first_seen, p.created_at) AS bound_at,
        p.uid = left(sha256(concat_ws('/', p.cluster, p.namespace, p.pod)), 32) AS hashed
    FROM requested AS w
    INNER JOIN pod_owners AS p
        ON
            w.cluster = p.cluster
            AND w.namespace = p.namespace
            AND w.workload_kind = p.workload_kind
            AND w.workload = p.workload
    INNER JOIN inventory AS i ON p.cluster = i.cluster
    WHERE
        coalesce(p.node, p.scheduled_at::VARCHAR) IS NOT null
        AND (p.finished_at IS NOT null OR coalesce(p.phase, '') NOT IN ('Succeeded', 'Failed'))
)

SELECT
    k.*, -- noqa: AM04
    row_number() OVER (ORDER BY k.cluster, k.uid) AS pod_number
FROM candidates AS k
WHERE
    k.gpus > 0
    AND NOT (
        k.hashed AND EXISTS (
            SELECT 1 FROM candidates AS r
            WHERE
                r.workload_number = k.workload_number AND r.namespace = k.namespace
                AND r.pod = k.pod AND NOT r.hashed
        )
    )
