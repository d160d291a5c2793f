-- Host names of nodes that are not the name that Kubernetes has for them.
SELECT
    address,
    node
FROM address
WHERE
    address <> lower(node) AND NOT regexp_matches(address, '^[0-9.]+$|:|^pod/')
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
ORDER BY cluster, node, address
