-- The node of each of these hosts, and of names that share their first label: a full name and the
-- short one.
SELECT
    address,
    node
FROM address
WHERE
    cluster = $cluster
    AND (
        address IN (SELECT unnest($hosts))
        OR split_part(address, '.', 1) IN (SELECT unnest($labels))
    )
