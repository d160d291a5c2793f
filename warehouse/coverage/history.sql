-- Whether a cluster's history is read, and from when on it has samples; $cluster.
SELECT
    (
        SELECT min(bucket) FROM rollup_1h
        WHERE "cluster" = $cluster
    ) AS first,
    EXISTS (
        SELECT 1 FROM "cursor"
        WHERE starts_with(source, 'history of cluster ' || $cluster || ' since ')
    ) AS is_read;
