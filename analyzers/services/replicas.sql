-- How many replicas of each workload had devices in an hour, and their activity: summed over
-- replicas, each the mean of its devices.
WITH wanted AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($namespaces) AS namespace,
        unnest($kinds) AS workload_kind,
        unnest($workloads) AS workload
),

device_hours AS MATERIALIZED (
    SELECT
        cluster,
        bucket,
        device,
        namespace,
        pod,
        act_mean,
        sm_active_mean
    FROM rollup_1h
    WHERE bucket >= $since AND bucket < $until AND act_n > 0 AND coalesce(sharers, 1) <= 1
),

named AS (
    SELECT *
    FROM device_hours
    WHERE pod <> ''
    UNION ALL BY NAME
    SELECT h.* REPLACE (a.namespace AS namespace, a.pod AS pod) -- noqa: PRS
    FROM device_hours AS h
    INNER JOIN allocation AS a
        ON
            h.cluster = a.cluster AND h.device = a.device
            AND h.bucket >= a.start AND h.bucket + INTERVAL 1 HOUR <= a."end"
    WHERE h.pod = '' AND coalesce(a.share, 1.0) > 0.999
),

pods AS (
    SELECT
        cluster,
        namespace,
        pod,
        bucket,
        count(DISTINCT device) AS devices,
        avg(act_mean) AS act,
        avg(sm_active_mean) AS sm
    FROM named
    GROUP BY ALL
),

hours AS (
    SELECT
        o.cluster,
        o.namespace,
        o.workload_kind,
        o.workload,
        p.bucket,
        count(*) AS replicas,
        sum(p.act) AS active,
        avg(p.devices) AS devices,
        avg(p.sm) AS sm
    FROM pods AS p
    INNER JOIN device_owners AS o
        ON p.cluster = o.cluster AND p.namespace = o.namespace AND p.pod = o.pod
    INNER JOIN wanted AS a
        ON
            o.cluster = a.cluster AND o.namespace = a.namespace
            AND o.workload_kind = a.workload_kind AND o.workload = a.workload
    GROUP BY ALL
)

SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    count(*) AS hours,
    median(replicas) AS replicas,
    median(devices) AS devices,
    max(active) AS most_active,
    avg(active / replicas) AS act,
    avg(sm) AS sm
FROM hours
GROUP BY ALL
ORDER BY ALL
