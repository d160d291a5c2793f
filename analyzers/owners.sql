-- The owner of each pod's name when it was last seen, and its annotations. An owner whose kind no
-- inventory has is of kind `unresolved`, as in inventory/pod_owners.sql.
SELECT
    cluster,
    namespace,
    pod,
    coalesce(
        max_by(workload_kind, coalesce(last_seen, TIMESTAMP '1970-01-01')), 'unresolved'
    ) AS workload_kind,
    max_by(workload, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS workload,
    max_by(team, coalesce(last_seen, TIMESTAMP '1970-01-01')) AS team,
    max_by(
        json_extract_string(annotations, '$."fallow.dev/family"'),
        coalesce(last_seen, TIMESTAMP '1970-01-01')
    ) AS family,
    max_by(
        json_extract_string(annotations, '$."fallow.dev/slo"'),
        coalesce(last_seen, TIMESTAMP '1970-01-01')
    ) AS slo,
    max(coalesce(last_seen, TIMESTAMP '1970-01-01')) AS last_seen
FROM pod
GROUP BY ALL
