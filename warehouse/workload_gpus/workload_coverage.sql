-- What each stretch's workload holds at its end and how much of it is covered, the longest time
-- without evidence of a pod, the coverage over the whole stretch, and the first pod by name that is
-- not covered.
SELECT
    s.span,
    count(p.pod_number) FILTER (WHERE p.at_end) AS replicas,
    count(p.pod_number) FILTER (WHERE p.at_end AND p.gpus_seen < $whole * p.gpus)
        AS replicas_unseen,
    coalesce(max(p.part_us * (1 - p.gpus_seen / p.gpus)), 0)::BIGINT AS unseen_us,
    coalesce(sum(p.gpus) FILTER (WHERE p.at_end), 0.0) AS gpus,
    coalesce(sum(p.gpus_seen) FILTER (WHERE p.at_end), 0.0) AS gpus_seen,
    sum(p.gpus_seen * p.part_us) / nullif(sum(p.gpus * p.part_us), 0) AS coverage,
    arg_min(p.pod, p.pod) FILTER (WHERE p.at_end AND p.gpus_seen < $whole * p.gpus)
        AS unseen_pod,
    arg_min(p.node, p.pod) FILTER (WHERE p.at_end AND p.gpus_seen < $whole * p.gpus)
        AS unseen_node
FROM judged_stretches AS s
LEFT JOIN covered_pods AS p ON s.span = p.span
GROUP BY s.span
ORDER BY s.span
