-- When nodes became ready and ceased to be, as events tell it.
SELECT
    cluster,
    name AS node,
    epoch_us(ts) AS at_us,
    reason = 'NodeReady' AS ready
FROM event
WHERE kind = 'Node' AND reason IN ('NodeNotReady', 'NodeReady') AND ts < $until
ORDER BY cluster, node, at_us
