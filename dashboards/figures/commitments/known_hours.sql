-- The hours in which every cluster that has nodes of a reserved kind is in the ledger, or any
-- cluster where none has: whether the kind ran in other hours is unknown.
WITH holders AS (
    SELECT DISTINCT cluster
    FROM node_eras
    WHERE
        instance_type = $instance_type
        AND ($region = '' OR coalesce(region, '') IN ('', $region))
        AND coalesce(capacity_type, '') <> 'spot'
)

SELECT bucket AS hour
FROM ledger_1h
WHERE bucket >= $since AND bucket < $until
GROUP BY bucket
HAVING
    count(DISTINCT cluster) FILTER (WHERE cluster IN (SELECT h.cluster FROM holders AS h))
    = (SELECT count(*) FROM holders)
