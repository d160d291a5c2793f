-- Every rate that can price a kind of node; the lowest rank wins (docs/prices.md lists the ranks).
WITH ranked AS (
    SELECT
        k.kind,
        r.source,
        r.reference,
        r.as_of,
        r.valid_from,
        r.valid_to,
        r.region,
        r.zone,
        r.node_usd_h::DOUBLE / coalesce(r.gpu_count, k.gpu_count) AS loaded_usd_h,
        r.gpu_usd_h::DOUBLE AS gpu_usd_h,
        r.instance_type = k.instance_type AND k.instance_type <> '' AS same_type,
        r.term = k.capacity_type AS same_term,
        r.region IN ('', k.region) AS same_region,
        r.provider <> 'on-prem' OR r.cluster <> '' OR k.provider NOT IN ('aws', 'gcp', 'azure')
            AS may_price,
        CASE
            WHEN r.term = 'unpriced' AND may_price THEN 15
            WHEN r.term = 'unpriced' THEN null
            WHEN r.source = 'spot-estimate' AND NOT same_term THEN null
            WHEN r.source = 'spot-estimate' AND same_type AND same_region THEN 8
            WHEN r.source = 'spot-estimate' AND same_type THEN 9
            WHEN r.source = 'spot-estimate' THEN 13
            WHEN r.provider = 'override' AND r.source <> 'settings' AND r.cluster <> '' THEN 1
            WHEN r.provider = 'override' AND r.gpu_model <> '' THEN 2
            WHEN r.provider = 'override' THEN 3
            WHEN r.provider = 'on-prem' AND r.cluster <> '' THEN 4
            WHEN same_type AND same_term AND same_region AND r.zone = k.zone AND k.zone <> '' THEN 5
            WHEN same_type AND same_term AND same_region THEN 6
            WHEN same_type AND same_term THEN 7
            WHEN same_type AND r.term = 'on-demand' AND same_region THEN 10
            WHEN same_type AND r.term = 'on-demand' THEN 11
            WHEN r.provider = 'on-prem' AND may_price THEN 12
            WHEN r.provider = 'derived' THEN 14
        END AS rank
    FROM kinds AS k
    INNER JOIN rate AS r
        ON
            r.cluster IN ('', k.cluster)
            AND (r.gpu_model = '' OR k.gpu_model = r.gpu_model OR k.gpu_model IS null)
            AND r.instance_type IN ('', k.instance_type)
            AND (r.instance_type <> '' OR r.gpu_model IN ('', k.gpu_model))
    WHERE
        r.valid_from < $until
        AND coalesce(r.valid_to, $until) > $since
        AND r.node_usd_h > 0
        AND r.nodes IS null -- a commitment's nodes: `covered`
)

SELECT
    *,
    -- It is the price of another region, term or instance type than the node's.
    rank >= 7 AND rank NOT IN (12, 15) AS estimated
FROM ranked
WHERE rank IS NOT null AND loaded_usd_h IS NOT null
