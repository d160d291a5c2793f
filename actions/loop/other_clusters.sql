-- The actions that other clusters' journals began since then; a cluster with older rows only has
-- one row without a document: it has an actor all the same.
SELECT
    cluster,
    CASE WHEN kind = $kind AND ts >= $since THEN document END AS document
FROM action
WHERE cluster <> $cluster
GROUP BY ALL
