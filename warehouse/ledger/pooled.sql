-- Devices with their node and its pool, from when to when; a bucket goes by its middle.
SELECT
    d.* EXCLUDE (holds_from, holds_to), -- noqa: AM04
    n.pool,
    greatest(d.holds_from, coalesce(n.holds_from, '-infinity')) AS holds_from,
    least(d.holds_to, coalesce(n.holds_to, 'infinity')) AS holds_to
FROM device_places AS d
LEFT JOIN node_eras AS n
    ON
        d.cluster = n.cluster AND d.node = n.node
        AND d.holds_to > n.holds_from AND d.holds_from < n.holds_to
