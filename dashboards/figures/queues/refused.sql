-- The last message of a scheduler about each pod.
SELECT
    cluster,
    namespace,
    name AS pod,
    arg_max(message, ts) AS message
FROM event
WHERE ts < $until AND kind = 'Pod' AND reason = 'FailedScheduling'
GROUP BY ALL
