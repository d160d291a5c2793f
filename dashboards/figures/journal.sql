-- The journal's copy, filtered by cluster: what every figure about acts begins with.
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
