-- The pods of each stretch's workload that were bound to a node in it and hold GPUs, with the part
-- of the stretch in which they did, and whether they still did at its end. A pod without a known
-- end exists until ten minutes after it was last seen.
WITH candidates AS (
    SELECT
        s.span,
        s.start_at,
        s.end_at,
        p.pod_number,
        p.pod,
        p.node,
        p.gpus,
        p.finished_at,
        p.last_seen,
        coalesce(p.bound_at, s.start_at) AS bound_at,
        coalesce(p.last_seen >= least(p.last_list, s.end_at) - INTERVAL 10 MINUTE, true) AS listed
    FROM judged_stretches AS s
    INNER JOIN workload_pods AS p ON s.workload_number = p.workload_number
),

parts AS (
    SELECT
        k.span,
        k.pod_number,
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
)

SELECT * FROM parts
WHERE from_at < to_at
