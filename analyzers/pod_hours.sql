-- Hours with the pod that worked in them. Where telemetry names no pod, it is the pod with an
-- allocation of the whole device for the whole hour.
SELECT * -- noqa: AM04
FROM busy_hours
WHERE pod <> ''
UNION ALL BY NAME
SELECT w.* REPLACE (a.namespace AS namespace, a.pod AS pod) -- noqa: PRS
FROM busy_hours AS w
INNER JOIN allocation AS a
    ON
        w.cluster = a.cluster AND w.device = a.device
        AND w.bucket >= a.start AND w.bucket + INTERVAL 1 HOUR <= a."end"
WHERE w.pod = '' AND coalesce(a.share, 1.0) > 0.999
