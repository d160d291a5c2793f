-- What the ledger has dollars for, with the columns by which prices distinguish devices.
SELECT
    row_number() OVER (ORDER BY cluster, node, model) AS device_id,
    cluster,
    node,
    model,
    '-infinity'::TIMESTAMP AS holds_from,
    'infinity'::TIMESTAMP AS holds_to
FROM (
    SELECT DISTINCT
        cluster,
        node,
        model
    FROM ledger
    WHERE bucket >= $since AND bucket < $until
) AS ledger_devices
