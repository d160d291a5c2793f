-- When nodes became ready and not ready, from events.
SELECT
    cluster,
    name AS node,
    epoch_us(ts) AS at_us,
    reason = 'NodeReady' AS ready
FROM event
WHERE kind = 'Node' AND reason IN ('NodeNotReady', 'NodeReady') AND ts < $until
ORDER BY cluster, node, at_us
