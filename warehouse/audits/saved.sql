-- The saving of an action is at most what the devices that it released have cost since. Those
-- devices are at most the share that its allocations name. Each kind of saving occurs once per
-- action.
WITH acts AS (
    SELECT
        cluster,
        action,
        any_value(namespace) AS namespace,
        any_value(workload_kind) AS workload_kind,
        any_value(workload) AS workload,
        min(start) AS acted,
        max("end") AS until,
        sum(gpu_hours) AS gpu_hours,
        sum(held_gpu_hours) AS held_gpu_hours,
        sum(usd) AS usd,
        sum(held_usd) AS held_usd,
        count(*) - count(DISTINCT kind) AS twice,
        bool_or(kind NOT IN ('cash', 'served', 'released', 'sunk')) AS unnamed
    FROM saving
    WHERE "end" >= $since AND start < $until
    GROUP BY cluster, action
),

-- an allocation that ended minutes before the action is the one that the action released
allocated_devices AS (
    SELECT
        a.cluster,
        a.action,
        al.device,
        max(al.share * d.weight) AS gpus
    FROM acts AS a
    INNER JOIN allocation AS al
        ON
            a.cluster = al.cluster
            AND a.namespace = al.namespace
            AND a.workload_kind = al.workload_kind
            AND a.workload = al.workload
            AND a.acted >= al.start
            AND a.acted - INTERVAL 10 MINUTE < coalesce(al."end", a.acted)
    INNER JOIN device AS d ON al.cluster = d.cluster AND al.device = d.device
    GROUP BY a.cluster, a.action, al.device
),

allocated AS (
    SELECT
        cluster,
        action,
        sum(gpus) AS gpus
    FROM allocated_devices
    GROUP BY cluster, action
)

SELECT
    a.cluster,
    a.action,
    a.gpu_hours,
    a.held_gpu_hours,
    a.usd,
    a.held_usd,
    CASE
        WHEN a.twice > 0 OR a.unnamed THEN 'a kind that is none, or is there twice'
        WHEN a.gpu_hours > a.held_gpu_hours + 0.000001 THEN 'more hours than its devices had'
        WHEN a.usd > a.held_usd THEN 'more dollars than its devices cost'
        ELSE 'more devices than it had held'
    END AS why
FROM acts AS a
LEFT JOIN allocated AS h ON a.cluster = h.cluster AND a.action = h.action
WHERE
    a.twice > 0
    OR a.unnamed
    OR a.gpu_hours > a.held_gpu_hours + 0.000001
    OR a.usd > a.held_usd
    OR a.held_gpu_hours > coalesce(h.gpus, 0) * epoch(a.until - a.acted) / 3600 + 0.000001
ORDER BY a.cluster, a.action
