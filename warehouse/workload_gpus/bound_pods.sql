-- The pods of each stretch's workload that were bound to a node in it and hold GPUs, with the part
-- of the stretch in which they did, and whether they still did at its end. A pod without a known
-- end exists until ten minutes after it was last seen. A request of GPU memory without a count is
-- one GPU. A source without UIDs hashes the name: where a row has the real UID of the same
-- lifetime, its row is left out.
WITH inventory AS (
    SELECT
        cluster,
        max(last_seen) AS last_list
    FROM pod
    GROUP BY cluster
),

candidates AS (
    SELECT
        s.span,
        s.start_at,
        s.end_at,
        p.cluster,
        p.uid,
        p.namespace,
        p.pod,
        p.node,
        p.finished_at,
        p.last_seen,
        coalesce(p.gpu_request, CASE WHEN p.gpu_resource IS NOT null THEN 1.0 END, 0.0) AS gpus,
        coalesce(p.scheduled_at, p.started_at, p.first_seen, p.created_at, s.start_at) AS bound_at,
        coalesce(p.last_seen >= least(i.last_list, s.end_at) - INTERVAL 10 MINUTE, true) AS listed,
        p.uid = left(sha256(concat_ws('/', p.cluster, p.namespace, p.pod)), 32) AS hashed
    FROM judged_stretches AS s
    INNER JOIN pod_owners AS p
        ON
            s.cluster = p.cluster
            AND s.namespace = p.namespace
            AND s.workload_kind = p.workload_kind
            AND s.workload = p.workload
    INNER JOIN inventory AS i ON p.cluster = i.cluster
    WHERE
        coalesce(p.node, p.scheduled_at::VARCHAR) IS NOT null
        AND (p.finished_at IS NOT null OR coalesce(p.phase, '') NOT IN ('Succeeded', 'Failed'))
),

parts AS (
    SELECT
        k.span,
        k.cluster,
        k.uid,
        k.namespace,
        k.pod,
        k.node,
        k.gpus,
        greatest(k.bound_at, k.start_at) AS from_at,
        CASE
            WHEN k.finished_at IS NOT null THEN least(k.finished_at, k.end_at)
            WHEN k.listed THEN k.end_at
            ELSE least(k.last_seen, k.end_at)
        END AS to_at,
        k.listed AND coalesce(k.finished_at >= k.end_at, true) AS at_end
    FROM candidates AS k
    WHERE
        k.gpus > 0
        AND NOT (
            k.hashed AND EXISTS (
                SELECT 1 FROM candidates AS r
                WHERE
                    r.span = k.span AND r.namespace = k.namespace AND r.pod = k.pod
                    AND NOT r.hashed
            )
        )
)

SELECT * FROM parts
WHERE from_at < to_at
