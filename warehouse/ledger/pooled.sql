-- Devices with the pool of their node, from when to when; a bucket goes by its middle.
SELECT
    d.*, -- noqa: AM04
    n.pool,
    coalesce(n.holds_from, '-infinity') AS holds_from,
    coalesce(n.holds_to, 'infinity') AS holds_to
FROM devices AS d
LEFT JOIN node_eras AS n ON d.cluster = n.cluster AND d.node = n.node
