-- When nodes became ready and not ready: by events, and by their last observation, wherever it is
-- from. The observations of a window's last hour are of its end: a later one says nothing of it.
SELECT
    cluster,
    name AS node,
    epoch_us(ts) AS at_us,
    reason = 'NodeReady' AS ready
FROM event
WHERE kind = 'Node' AND reason IN ('NodeNotReady', 'NodeReady') AND ts < $until
UNION ALL BY NAME
SELECT
    cluster,
    node,
    epoch_us(least(last_seen, $until::TIMESTAMP - INTERVAL 1 MICROSECOND)) AS at_us,
    ready
FROM node
WHERE last_seen < $until::TIMESTAMP + INTERVAL 1 HOUR
ORDER BY cluster, node, at_us
