-- The workload of one finding.
SELECT
    cluster,
    workload
FROM listed
WHERE id = $id
