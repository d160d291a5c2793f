-- The five minutes in which a whole GPU's power repeats an old value, for GPUs without an energy
-- counter that moves. All its readings are equal (equal means are not), 20 at least, and
-- either others of its node and model print finer values in the same hour,
-- or the run is over five times as long as the longest of others of its model and resolution.
-- The others are as idle, or as busy, as it is: a busy GPU's power never stands still. A run of
-- others shows life where it ended; and where most of them stand still, stillness is no sign. A
-- constant may be of any resolution that it is a multiple of. Runs shorter than two buckets are not
-- seen: the longest is ten minutes at least.
WITH five_minutes AS (
    SELECT
        r.cluster,
        r.device,
        any_value(d.node) AS node,
        any_value(coalesce(d.gpu_model, d.model)) AS model,
        r.bucket,
        max(r.act_max) <= $threshold + 1e-6 AS idle,
        max(r.power_w_n) AS readings,
        min(r.power_w_min) AS least_w,
        max(r.power_w_max) AS most_w,
        max(r.energy_mj) AS energy_mj
    FROM rollup_5m AS r
    INNER JOIN device AS d ON r.cluster = d.cluster AND r.device = d.device
    WHERE
        r.bucket >= $since::TIMESTAMP - INTERVAL 24 HOUR
        AND r.bucket < $until::TIMESTAMP + INTERVAL 24 HOUR
        AND d.parent IS NULL AND r.power_w_n > 0 AND r.act_n > 0
    GROUP BY r.cluster, r.device, r.bucket
),

step AS (
    SELECT
        *, -- noqa: AM04
        -- 1 finer than a watt, 2 whole watts, 3 tens of watts.
        CASE
            WHEN abs(least_w - round(least_w)) > 1e-3 OR abs(most_w - round(most_w)) > 1e-3 THEN 1
            WHEN round(least_w) % 10 <> 0 OR round(most_w) % 10 <> 0 THEN 2
            ELSE 3
        END AS grain,
        least_w <> most_w
        OR coalesce(
            least_w <> lag(most_w) OVER device OR idle <> lag(idle) OVER device, TRUE
        ) AS changed
    FROM five_minutes
    WINDOW device AS (PARTITION BY cluster, device ORDER BY bucket)
),

numbered AS (
    SELECT
        *, -- noqa: AM04
        sum(changed::INTEGER) OVER (PARTITION BY cluster, device ORDER BY bucket) AS run,
        min(bucket) OVER (PARTITION BY cluster, device) AS first_at,
        max(bucket) OVER (PARTITION BY cluster, device) AS last_at
    FROM step
),

run AS (
    SELECT
        cluster,
        device,
        idle,
        run,
        min(bucket) AS start,
        max(bucket) + INTERVAL 5 MINUTE AS stop,
        min(bucket) > any_value(first_at) AS changed_before,
        max(bucket) < any_value(last_at) AS changes_after,
        sum(readings) AS readings,
        sum(energy_mj) > 0 AS counts
    FROM numbered
    WHERE least_w = most_w
    GROUP BY cluster, device, idle, run
    -- One bucket is less than the ten minutes that each comparison begins with, and most are alone.
    HAVING max(bucket) > min(bucket)
),

-- What each GPU shows in an hour, and its runs in the day before and after it.
gpu_hour AS (
    SELECT
        cluster,
        device,
        node,
        model,
        idle,
        date_trunc('hour', bucket) AS hour,
        min(grain) AS grain
    FROM numbered
    WHERE
        bucket >= date_trunc('hour', $since::TIMESTAMP)
        AND bucket < $until::TIMESTAMP + INTERVAL 1 HOUR
    GROUP BY ALL
),

clipped AS (
    SELECT
        g.*,
        r.start,
        r.stop,
        r.readings,
        coalesce(r.counts, FALSE) AS counts,
        -- `least` passes over nulls.
        CASE
            WHEN r.start IS NULL THEN 0
            ELSE
                epoch(least(r.stop, g.hour + INTERVAL 25 HOUR))
                - epoch(greatest(r.start, g.hour - INTERVAL 24 HOUR))
        END AS seconds,
        coalesce(
            r.changed_before AND r.changes_after
            AND r.start > g.hour - INTERVAL 24 HOUR AND r.stop < g.hour + INTERVAL 25 HOUR,
            FALSE
        ) AS ended
    FROM gpu_hour AS g
    LEFT JOIN run AS r
        ON
            g.cluster = r.cluster AND g.device = r.device AND g.idle = r.idle
            AND r.stop > g.hour - INTERVAL 24 HOUR AND r.start < g.hour + INTERVAL 25 HOUR
),

longest AS (
    SELECT
        cluster,
        device,
        node,
        model,
        idle,
        hour,
        grain,
        max(seconds) AS seconds,
        coalesce(max(seconds) FILTER (WHERE ended), 0) AS ended_s
    FROM clipped
    GROUP BY ALL
),

coarsest AS (SELECT unnest([1, 2, 3]) AS grain),

of_model AS (
    SELECT
        model,
        idle,
        hour,
        coarsest.grain,
        count(*) AS gpus,
        max(ended_s, 2) AS longest_s,
        quantile_disc(seconds, 0.5) AS median_s
    FROM longest
    INNER JOIN coarsest ON longest.grain <= coarsest.grain
    GROUP BY ALL
),

of_node AS (
    SELECT
        cluster,
        node,
        model,
        hour,
        min(grain) AS grain
    FROM gpu_hour
    GROUP BY ALL
),

frozen AS (
    SELECT
        c.cluster,
        c.device,
        greatest(c.start + INTERVAL 5 MINUTE, c.hour, $since::TIMESTAMP) AS start,
        least(c.stop, c.hour + INTERVAL 1 HOUR, $until::TIMESTAMP) AS stop
    FROM clipped AS c
    INNER JOIN longest AS o
        ON c.cluster = o.cluster AND c.device = o.device AND c.idle = o.idle AND c.hour = o.hour
    INNER JOIN of_model AS m
        ON c.model = m.model AND c.idle = m.idle AND c.hour = m.hour AND c.grain = m.grain
    INNER JOIN of_node AS n
        ON c.cluster = n.cluster AND c.node = n.node AND c.model = n.model AND c.hour = n.hour
    WHERE
        NOT c.counts AND c.readings >= 20
        AND (
            (c.grain > 1 AND n.grain = 1)
            OR (
                m.gpus > 1
                AND c.seconds > 5 * greatest(
                    600,
                    m.median_s,
                    -- The longest of the others, not its own.
                    CASE WHEN o.ended_s < m.longest_s[1] THEN m.longest_s[1] ELSE m.longest_s[2] END
                )
            )
        )
)

SELECT DISTINCT
    cluster,
    device,
    epoch_us(unnest(generate_series(start, stop - INTERVAL 5 MINUTE, INTERVAL 5 MINUTE))) AS at_us
FROM frozen
WHERE stop > start
