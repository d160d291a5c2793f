-- The on-demand price of the same node: the newest list price of its type.
SELECT
    node_usd_h,
    source,
    as_of
FROM rate
WHERE
    instance_type = $instance_type
    AND term = 'on-demand'
    AND ($region = '' OR region IN ('', $region))
    AND node_usd_h > 0
    AND valid_from < $until
    AND coalesce(valid_to, $until) > $since
ORDER BY (region = $region) DESC, as_of DESC NULLS LAST, valid_from DESC, node_usd_h ASC
LIMIT 1
