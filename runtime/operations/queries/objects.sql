-- How many pods and nodes of a cluster are stored.
SELECT count(*) AS objects
FROM (
    SELECT cluster FROM pod
    UNION ALL BY NAME
    SELECT cluster FROM node
) AS stored
WHERE stored.cluster = $cluster
