-- Seconds by state: holders first, then what nobody held. What nobody speaks for, conflicts and
-- looks without a compute witness are unknown. Activity that no holder explains is named by its
-- state with nobody as its owner (domain.md Q11): neither idle nor free.
WITH holders AS (
    SELECT
        c.cluster,
        c.device,
        c.bucket,
        c.namespace,
        c.workload_kind,
        c.workload,
        c.team,
        c.own_s,
        least(1, coalesce(c.start_s / c.time_s, 0)) AS starting,
        CASE
            WHEN c.named THEN c.idle_s * c.used
            WHEN v.over_s > 0 THEN v.idle_s * c.own_s / v.over_s
            ELSE 0
        END AS idle_s,
        CASE
            WHEN c.named THEN c.low_s * c.used
            WHEN v.over_s > 0 THEN v.low_s * c.own_s / v.over_s
            ELSE 0
        END AS low_s,
        CASE
            WHEN c.named THEN c.busy_s * c.used
            WHEN v.over_s > 0 THEN v.busy_s * c.own_s / v.over_s
            ELSE 0
        END AS busy_s
    FROM claimed AS c
    INNER JOIN vacancies AS v
        ON c.cluster = v.cluster AND c.device = v.device AND c.cell = v.cell
),

nobody AS (
    SELECT
        cluster,
        device,
        bucket,
        down,
        rest_s + vacant_s AS left_s,
        CASE WHEN over_s > 0 THEN low_s * vacant_s / over_s ELSE 0 END AS low_s,
        CASE WHEN over_s > 0 THEN busy_s * vacant_s / over_s ELSE 0 END AS busy_s,
        CASE WHEN over_s > 0 THEN idle_s * vacant_s / over_s ELSE 0 END
        + least(
            rest_s,
            CASE WHEN over_s > 0 THEN covered_s * rest_s / over_s ELSE 0 END + spare_s
        ) AS free_s
    FROM vacancies
    WHERE kind <> 'unpartitioned'
),

rows_by_state AS (
    SELECT
        cluster,
        device,
        bucket,
        namespace,
        workload_kind,
        workload,
        team,
        unnest(['startup', 'idle', 'low', 'productive', 'unknown']) AS state,
        unnest(
            [
                idle_s * starting,
                idle_s * (1 - starting),
                low_s,
                busy_s,
                own_s - idle_s - low_s - busy_s
            ]
        ) AS seconds
    FROM holders
    UNION ALL
    SELECT
        cluster,
        device,
        bucket,
        '',
        '',
        '',
        null,
        unnest(['unavailable', 'free', 'low', 'productive', 'unknown']),
        unnest(
            [
                left_s * down,
                free_s * (1 - down),
                low_s * (1 - down),
                busy_s * (1 - down),
                (left_s - free_s - low_s - busy_s) * (1 - down)
            ]
        )
    FROM nobody
    UNION ALL
    SELECT
        cluster,
        device,
        bucket,
        '',
        '',
        '',
        null,
        unnest(['unavailable', 'stranded']),
        unnest([cap_s * down, cap_s * (1 - down)])
    FROM vacancies
    WHERE kind = 'unpartitioned'
)

SELECT
    cluster,
    device,
    bucket,
    namespace,
    workload_kind,
    workload,
    any_value(team) AS team,
    state,
    sum(seconds) AS seconds
FROM rows_by_state
WHERE seconds > 1e-6
GROUP BY cluster, device, bucket, namespace, workload_kind, workload, state
