-- Hours with the pod that worked in them. Those whose telemetry names no pod are the holder's of
-- the whole hour, where one pod held the whole device.
SELECT * -- noqa: AM04
FROM worked
WHERE pod <> ''
UNION ALL
SELECT w.* REPLACE (a.namespace AS namespace, a.pod AS pod) -- noqa: PRS
FROM worked AS w
INNER JOIN allocation AS a
    ON
        w.cluster = a.cluster AND w.device = a.device
        AND w.bucket >= a.start AND w.bucket + INTERVAL 1 HOUR <= a."end"
WHERE w.pod = '' AND coalesce(a.share, 1.0) > 0.999
