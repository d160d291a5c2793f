-- The highest price of each instance type in force at the end of the window, by region and term.
SELECT
    provider,
    region,
    zone,
    instance_type,
    term,
    node_usd_h,
    as_of,
    reference
FROM rate
WHERE
    instance_type <> ''
    AND node_usd_h > 0
    AND source <> 'spot-estimate'
    AND valid_from < $until::TIMESTAMP
    AND (valid_to IS null OR valid_to >= $until::TIMESTAMP)
QUALIFY
    row_number() OVER (
        PARTITION BY provider, region, instance_type, term
        ORDER BY node_usd_h DESC, zone ASC, source ASC
    ) = 1
ORDER BY ALL
