-- The journal's copy, filtered by cluster: the first step of every figure about actions.
SELECT
    cluster,
    seq,
    ts,
    kind,
    about,
    actor,
    document
FROM action
WHERE $cluster::VARCHAR IS null OR cluster = $cluster
