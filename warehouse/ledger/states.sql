-- Seconds by state, one row per device, bucket and holder: allocated time first, then the rest.
-- Unknown are seconds for which no sample is valid, whose signals contradict each other, or without
-- a compute signal, all of a pod that cannot be read, and what such a pod may have. Activity that
-- no holder explains has no owner and keeps its own state
-- (telemetry-and-waste.md#telemetry-faults): it is neither idle nor free. `before_s` = the seconds
-- of the bucket's earlier rows. `effective` = the holder's mean effective utilisation over the time
-- in which its use was known; null where no signal measured it.
WITH unread AS (
    SELECT DISTINCT owner_id
    FROM owners
    WHERE unreadable
),

holding_pods AS (
    SELECT
        c.device_id,
        c.bucket,
        c.holder_id,
        c.own_s,
        least(1, c.start_s / c.time_s) AS starting,
        CASE
            WHEN x.owner_id IS NOT null THEN 0
            WHEN c.named THEN c.used
            WHEN v.over_s > 0 THEN c.own_s / v.over_s
            ELSE 0
        END AS part,
        CASE WHEN c.named THEN c.idle_s ELSE v.idle_s END * part AS idle_s,
        CASE WHEN c.named THEN c.low_s ELSE v.low_s END * part AS low_s,
        CASE WHEN c.named THEN c.busy_s ELSE v.busy_s END * part AS busy_s,
        CASE
            WHEN x.owner_id IS NOT null THEN null
            WHEN c.named THEN c.effective
            ELSE v.effective
        END AS effective,
        coalesce(l.lost, 0) AS lost
    FROM claimed AS c
    INNER JOIN vacancies AS v ON c.device_id = v.device_id AND c.cell = v.cell
    LEFT JOIN unread AS x ON c.owner_id = x.owner_id
    LEFT JOIN lost AS l
        ON c.device_id = l.device_id AND c.cell = l.cell AND c.owner_id = l.owner_id
),

unallocated AS (
    SELECT
        device_id,
        bucket,
        down,
        hidden,
        rest_s + vacant_s AS left_s,
        CASE WHEN over_s > 0 THEN 1 / over_s ELSE 0 END AS per_s,
        low_s * vacant_s * per_s AS low_s,
        busy_s * vacant_s * per_s AS busy_s,
        idle_s * vacant_s * per_s
        + least(rest_s, covered_s * rest_s * per_s + spare_s) AS free_s
    FROM vacancies
    WHERE kind <> 'unpartitioned' AND rest_s + vacant_s > 1e-6
),

pieces AS (
    SELECT
        device_id,
        bucket,
        holder_id,
        0 AS free_s,
        idle_s * (1 - starting) AS idle_s,
        low_s * (1 - lost) AS low_s,
        busy_s * (1 - lost) AS busy_s,
        (low_s + busy_s) * lost AS lost_s,
        idle_s * starting AS startup_s,
        0 AS stranded_s,
        0 AS unavailable_s,
        own_s - idle_s - low_s - busy_s AS unknown_s,
        effective
    FROM holding_pods
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        0 AS holder_id,
        free_s * (1 - hidden) * (1 - down) AS free_s,
        0 AS idle_s,
        low_s * (1 - down) AS low_s,
        busy_s * (1 - down) AS busy_s,
        0 AS lost_s,
        0 AS startup_s,
        0 AS stranded_s,
        left_s * down AS unavailable_s,
        (left_s - free_s * (1 - hidden) - low_s - busy_s) * (1 - down) AS unknown_s,
        null AS effective
    FROM unallocated
    UNION ALL BY NAME
    SELECT
        device_id,
        bucket,
        0 AS holder_id,
        0 AS free_s,
        0 AS idle_s,
        0 AS low_s,
        0 AS busy_s,
        0 AS lost_s,
        0 AS startup_s,
        cap_s * (1 - down) AS stranded_s,
        cap_s * down AS unavailable_s,
        0 AS unknown_s,
        null AS effective
    FROM vacancies
    WHERE kind = 'unpartitioned'
),

summed AS (
    SELECT
        device_id,
        bucket,
        holder_id,
        sum(free_s::DECIMAL(18, 9))::DOUBLE AS free_s,
        sum(idle_s::DECIMAL(18, 9))::DOUBLE AS idle_s,
        sum(low_s::DECIMAL(18, 9))::DOUBLE AS low_s,
        sum(busy_s::DECIMAL(18, 9))::DOUBLE AS busy_s,
        sum(lost_s::DECIMAL(18, 9))::DOUBLE AS lost_s,
        sum(startup_s::DECIMAL(18, 9))::DOUBLE AS startup_s,
        sum(stranded_s::DECIMAL(18, 9))::DOUBLE AS stranded_s,
        sum(unavailable_s::DECIMAL(18, 9))::DOUBLE AS unavailable_s,
        sum(unknown_s::DECIMAL(18, 9))::DOUBLE AS unknown_s,
        sum(effective * (idle_s + low_s + busy_s + lost_s + startup_s))
        / nullif(
            sum(idle_s + low_s + busy_s + lost_s + startup_s) FILTER (WHERE effective IS NOT null),
            0
        ) AS effective
    FROM pieces
    GROUP BY device_id, bucket, holder_id
)

SELECT
    *,
    coalesce(
        sum(
            (
                free_s + idle_s + low_s + busy_s + lost_s + startup_s + stranded_s
                + unavailable_s + unknown_s
            )::DECIMAL(18, 9)
        ) OVER (
            PARTITION BY device_id, bucket
            ORDER BY holder_id
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        0
    )::DOUBLE AS before_s
FROM summed
UNION ALL BY NAME
SELECT
    device_id,
    bucket,
    holder_id,
    CASE WHEN holder_id = 0 THEN idle_s ELSE 0 END AS free_s,
    CASE WHEN holder_id = 0 THEN 0 ELSE idle_s END AS idle_s,
    low_s,
    busy_s,
    0 AS lost_s,
    0 AS startup_s,
    0 AS stranded_s,
    0 AS unavailable_s,
    $step_s - idle_s - low_s - busy_s AS unknown_s,
    CASE WHEN holder_id <> 0 THEN effective END AS effective,
    0 AS before_s
FROM plain
UNION ALL BY NAME
SELECT
    device_id,
    bucket,
    0 AS holder_id,
    0 AS free_s,
    0 AS idle_s,
    0 AS low_s,
    0 AS busy_s,
    0 AS lost_s,
    0 AS startup_s,
    0 AS stranded_s,
    CASE WHEN unavailable THEN seconds ELSE 0 END AS unavailable_s,
    CASE WHEN unavailable THEN 0 ELSE seconds END AS unknown_s,
    null AS effective,
    0 AS before_s
FROM untracked
