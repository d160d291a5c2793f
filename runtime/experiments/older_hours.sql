-- Hours of the ledger from $oldest to the first one of each cluster ($clusters, $first_hours): each
-- takes the rows of an hour of $since to $until, of the same time of a day of the same kind (a day
-- off or not). The first day is left out: a simulated fleet starts empty. What failed had not yet,
-- a workload that had not begun left its GPUs free, and nodes that had not joined
-- ($joined_nodes, $joined_at) have no rows.
WITH first_hours AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($first_hours::TIMESTAMP[]) AS first_hour
),

days AS (
    SELECT
        isodow(day) > 5 AS off,
        list(day ORDER BY day) AS day_list
    FROM (
        SELECT
            unnest(range($since::TIMESTAMP + INTERVAL 1 DAY, $until::TIMESTAMP, INTERVAL 1 DAY))
                AS day
    ) AS d
    GROUP BY ALL
),

hours AS (
    SELECT
        t.hour_at,
        d.day_list[1 + date_diff('day', DATE '1970-01-01', t.hour_at) % len(d.day_list)]
        + (t.hour_at - date_trunc('day', t.hour_at)) AS like_hour,
        -- of a hundred workloads
        $begun_pct[1 + date_diff('day', t.hour_at, $since::TIMESTAMP - INTERVAL 1 HOUR) // 7]
            AS begun_pct
    FROM (
        SELECT unnest(range($oldest::TIMESTAMP, $since::TIMESTAMP, INTERVAL 1 HOUR)) AS hour_at
    ) AS t
    INNER JOIN days AS d ON (isodow(t.hour_at) > 5) = d.off
),

joined AS (
    SELECT
        unnest($joined_nodes) AS node,
        unnest($joined_at::TIMESTAMP[]) AS joined_at
),

lives AS (
    SELECT
        l.cluster,
        l.device,
        any_value(l.node) AS node,
        any_value(d.last_seen) AS last_seen
    FROM ledger AS l
    LEFT JOIN device AS d ON l.cluster = d.cluster AND l.device = d.device
    WHERE l.bucket >= $since AND l.bucket < $until AND NOT contains(l.device, '/untracked')
    GROUP BY l.cluster, l.device
),

places AS (
    SELECT
        v.cluster,
        v.device,
        h.hour_at,
        h.begun_pct,
        -- A GPU that fell off its bus was there before.
        h.like_hour - CASE
            WHEN h.like_hour < v.last_seen THEN INTERVAL 0 DAY
            ELSE to_days((1 + date_diff('day', v.last_seen, h.like_hour))::INTEGER)
        END AS like_hour
    FROM lives AS v
    INNER JOIN first_hours AS f ON v.cluster = f.cluster
    INNER JOIN hours AS h ON f.first_hour > h.hour_at
    ANTI JOIN joined AS j ON v.node = j.node AND h.hour_at < j.joined_at
),

named AS (
    SELECT
        p.hour_at,
        l.* EXCLUDE (bucket), -- noqa: AM04
        l.workload = '' OR md5_number_lower(concat_ws('/', l.namespace, l.workload, $draw)) % 100
        < p.begun_pct
            AS begun
    FROM places AS p
    INNER JOIN ledger AS l
        ON p.cluster = l.cluster AND p.device = l.device AND p.like_hour = l.bucket
)

SELECT
    cluster,
    hour_at AS bucket,
    device,
    CASE
        WHEN NOT begun OR state = 'unavailable' THEN 'free'
        WHEN state = 'lost' THEN 'productive'
        ELSE state
    END AS state,
    CASE WHEN begun THEN namespace ELSE '' END AS namespace,
    CASE WHEN begun THEN workload_kind ELSE '' END AS workload_kind,
    CASE WHEN begun THEN workload ELSE '' END AS workload,
    CASE WHEN begun THEN team END AS team,
    node,
    pool,
    model,
    sum(seconds) AS seconds,
    sum(gpu_seconds) AS gpu_seconds,
    sum(usd) AS usd,
    sum(usd_gpu) AS usd_gpu,
    bool_and(priced) AS priced,
    bool_or(estimated) AS estimated,
    max(price_as_of) AS price_as_of,
    (sum(effective * seconds) FILTER (WHERE begun) / sum(seconds) FILTER (WHERE begun))::FLOAT
        AS effective
FROM named
GROUP BY ALL
ORDER BY bucket ASC, device ASC, state ASC, namespace ASC, workload ASC
