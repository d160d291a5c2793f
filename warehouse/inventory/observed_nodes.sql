-- Incoming rows of nodes (`incoming`) that none of the stored eras has: what was observed when. Of
-- a node that is observed several times all are: one ends what another one began.
-- A uid of another source is no other node where that node was born before the era was observed.
WITH counted AS (
    SELECT
        *,
        min(last_seen) OVER (PARTITION BY cluster, node)
        = max(last_seen) OVER (PARTITION BY cluster, node) AS is_single
    FROM incoming
)

SELECT
    i.* EXCLUDE (is_single) REPLACE (i.last_seen AS first_seen), -- noqa: AM04
    least(coalesce(i.first_seen, i.last_seen), i.last_seen) AS born_at
FROM counted AS i
ANTI JOIN era AS e
    ON
        i.is_single
        AND i.cluster = e.cluster
        AND i.node = e.node
        AND i.last_seen >= e.first_seen
        AND (e.valid_to IS null OR i.last_seen <= e.last_seen)
        AND coalesce(i.first_seen, i.last_seen) >= e.born_at
        AND (
            coalesce(i.uid = e.uid, i.uid IS null)
            OR (e.uid IS NOT null AND coalesce(i.first_seen, i.last_seen) <= e.first_seen)
        )
        AND coalesce(i.provider = e.provider, i.provider IS null)
        AND coalesce(i.region = e.region, i.region IS null)
        AND coalesce(i.zone = e.zone, i.zone IS null)
        AND coalesce(i.instance_type = e.instance_type, i.instance_type IS null)
        AND coalesce(i.capacity_type = e.capacity_type, i.capacity_type IS null)
        AND coalesce(i.pool = e.pool, i.pool IS null)
        AND coalesce(i.gpu_count = e.gpu_count, i.gpu_count IS null)
        AND coalesce(i.gpu_allocatable = e.gpu_allocatable, i.gpu_allocatable IS null)
        AND coalesce(i.gpu_model = e.gpu_model, i.gpu_model IS null)
        AND coalesce(i.gpu_replicas = e.gpu_replicas, i.gpu_replicas IS null)
WHERE i.last_seen IS NOT null
ORDER BY ALL
