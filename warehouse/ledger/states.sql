-- Seconds by state: holders first, then what nobody held. What nobody speaks for, conflicts and
-- looks without a compute witness are unknown. Activity that no holder explains is named by its
-- state with nobody as its owner (domain.md Q11): neither idle nor free.
WITH holding_pods AS (
    SELECT
        c.device_id,
        c.bucket,
        c.holder_id,
        c.own_s,
        least(1, c.start_s / c.time_s) AS starting,
        CASE
            WHEN c.named THEN c.used
            WHEN v.over_s > 0 THEN c.own_s / v.over_s
            ELSE 0
        END AS part,
        CASE WHEN c.named THEN c.idle_s ELSE v.idle_s END * part AS idle_s,
        CASE WHEN c.named THEN c.low_s ELSE v.low_s END * part AS low_s,
        CASE WHEN c.named THEN c.busy_s ELSE v.busy_s END * part AS busy_s
    FROM claimed AS c
    INNER JOIN vacancies AS v ON c.device_id = v.device_id AND c.cell = v.cell
),

nobody AS (
    SELECT
        device_id,
        bucket,
        down,
        rest_s + vacant_s AS left_s,
        CASE WHEN over_s > 0 THEN 1 / over_s ELSE 0 END AS per_s,
        low_s * vacant_s * per_s AS low_s,
        busy_s * vacant_s * per_s AS busy_s,
        idle_s * vacant_s * per_s
        + least(rest_s, covered_s * rest_s * per_s + spare_s) AS free_s
    FROM vacancies
    WHERE kind <> 'unpartitioned' AND rest_s + vacant_s > 1e-6
),

rows_by_state AS (
    SELECT
        device_id,
        bucket,
        holder_id,
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
    FROM holding_pods
    UNION ALL
    SELECT
        device_id,
        bucket,
        0,
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
        device_id,
        bucket,
        0,
        unnest(['unavailable', 'stranded']),
        unnest([cap_s * down, cap_s * (1 - down)])
    FROM vacancies
    WHERE kind = 'unpartitioned'
)

SELECT
    device_id,
    bucket,
    holder_id,
    state,
    sum(seconds) AS seconds
FROM rows_by_state
WHERE seconds > 1e-6
GROUP BY device_id, bucket, holder_id, state
