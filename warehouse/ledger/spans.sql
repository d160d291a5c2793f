-- Which devices exist when, as the ledger counts them, clipped to the window. A GPU in MIG mode is
-- counted as its instances plus the part that no instance covers (`<UUID>/unpartitioned`); before
-- and after MIG mode it is counted as itself. Devices that only a claim or a placement names are
-- capacity without telemetry. A device is where the inventory has the pod that surely holds it,
-- whichever node of the inventory reports it, or none; one that moved was on each node in its time.
WITH places AS (
    SELECT
        d.cluster,
        d.device,
        coalesce(n.node, d.node) AS node,
        coalesce(e.holds_from, '-infinity') AS holds_from,
        coalesce(e.holds_to, 'infinity') AS holds_to
    FROM device AS d
    LEFT JOIN value_eras AS e
        ON d.cluster = e.cluster AND d.device = e.id AND e.kind = 'device.node'
    LEFT JOIN node AS n ON e.cluster = n.cluster AND e.value = n.node
),

holders AS (
    SELECT
        a.cluster,
        a.device,
        m.holds_from,
        arg_max(p.node, a."end") AS node
    FROM allocation AS a
    INNER JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
    INNER JOIN node AS n ON p.cluster = n.cluster AND p.node = n.node
    INNER JOIN places AS m
        ON
            a.cluster = m.cluster AND a.device = m.device
            AND a.start < m.holds_to AND a."end" > m.holds_from
    WHERE a.attribution = 'exact' AND a.start < $until AND a."end" > $since
    GROUP BY a.cluster, a.device, m.holds_from
),

eras AS (
    SELECT
        cluster,
        parent,
        min(first_seen) AS era_start,
        max(last_seen) AS era_end,
        arg_max(node, last_seen) AS node,
        arg_max(coalesce(gpu_model, model), last_seen) AS model
    FROM device
    WHERE parent IS NOT null
    GROUP BY cluster, parent
),

device_eras AS (
    SELECT
        d.cluster,
        d.device,
        CASE
            WHEN m.node IS NOT null AND n.node IS null THEN m.node
            ELSE coalesce(h.node, m.node)
        END AS node,
        coalesce(d.gpu_model, d.model) AS model,
        coalesce(d.weight, 1) AS weight,
        CASE WHEN d.parent IS null THEN 'whole' ELSE 'instance' END AS kind,
        d.parent,
        greatest(d.first_seen, m.holds_from) AS first_seen,
        least(d.last_seen, m.holds_to) AS last_seen,
        e.era_start,
        e.era_end
    FROM device AS d
    INNER JOIN places AS m ON d.cluster = m.cluster AND d.device = m.device
    LEFT JOIN eras AS e ON d.cluster = e.cluster AND d.device = e.parent
    LEFT JOIN node AS n ON m.cluster = n.cluster AND m.node = n.node
    LEFT JOIN holders AS h
        ON m.cluster = h.cluster AND m.device = h.device AND m.holds_from = h.holds_from
    WHERE d.first_seen < $until AND d.last_seen > $since
),

named AS (
    SELECT
        a.cluster,
        a.device,
        any_value(p.node) AS node,
        any_value(m.gpu_model) AS gpu_model,
        min(a.start) AS start,
        max(a."end") AS "end"
    FROM allocation AS a
    LEFT JOIN pod AS p ON a.cluster = p.cluster AND a.pod_uid = p.uid
    LEFT JOIN node_models AS m
        ON
            p.cluster = m.cluster AND p.node = m.node
            AND a.start >= m.holds_from AND a.start < m.holds_to
    WHERE
        a.start < $until AND a."end" > $since
        AND NOT EXISTS (
            SELECT 1 FROM device AS d
            WHERE d.cluster = a.cluster AND d.device = a.device
        )
        AND NOT EXISTS (
            SELECT 1 FROM eras AS e
            WHERE e.cluster = a.cluster AND e.parent = a.device
        )
    GROUP BY a.cluster, a.device
),

-- When the whole GPUs of each node were seen last, the latest first.
last_times AS (
    SELECT
        d.cluster,
        m.node,
        list(least(d.last_seen, m.holds_to) ORDER BY d.last_seen DESC) AS ends
    FROM device AS d
    INNER JOIN places AS m ON d.cluster = m.cluster AND d.device = m.device
    WHERE d.parent IS null AND d.first_seen < $until
    GROUP BY d.cluster, m.node
),

all_spans AS (
    SELECT
        cluster,
        device,
        node,
        model,
        weight,
        kind,
        parent,
        first_seen AS from_at,
        least(last_seen, coalesce(era_start, last_seen)) AS to_at
    FROM device_eras
    WHERE era_start IS null OR era_start >= first_seen + INTERVAL 5 MINUTE
    UNION ALL BY NAME
    SELECT
        cluster,
        device,
        node,
        model,
        weight,
        kind,
        parent,
        greatest(first_seen, era_end) AS from_at,
        last_seen AS to_at
    FROM device_eras
    WHERE last_seen >= era_end + INTERVAL 5 MINUTE
    UNION ALL BY NAME
    SELECT
        cluster,
        parent || '/unpartitioned' AS device,
        node,
        model,
        null AS weight,
        'unpartitioned' AS kind,
        parent,
        era_start AS from_at,
        era_end AS to_at
    FROM eras
    UNION ALL BY NAME
    SELECT
        m.cluster,
        m.device,
        m.node,
        coalesce(m.gpu_model, n.gpu_model) AS model,
        1 AS weight,
        'whole' AS kind,
        null AS parent,
        greatest(
            least(m.start, coalesce(n.life_from, m.start)),
            coalesce(b.begun_at, m.start),
            -- A GPU that was lost had the place of `untracked<k>` until then.
            least(
                m.start,
                coalesce(
                    t.ends[
                        try_cast(regexp_extract(m.device, '/untracked(\d+)$', 1) AS INTEGER) + 1
                    ],
                    '-infinity'
                )
            )
        ) AS from_at,
        greatest(m."end", coalesce(n.life_to, m."end")) AS to_at
    FROM named AS m
    LEFT JOIN node_eras AS n
        ON
            m.cluster = n.cluster AND m.node = n.node
            AND m.start >= n.holds_from AND m.start < n.holds_to
    LEFT JOIN begun AS b ON m.cluster = b.cluster
    LEFT JOIN last_times AS t ON m.cluster = t.cluster AND m.node = t.node
)

SELECT
    dense_rank() OVER (ORDER BY s.cluster, s.device) AS device_id,
    s.cluster,
    s.device,
    s.node,
    s.model,
    s.weight,
    s.kind,
    s.parent,
    greatest(s.from_at, $since) AS from_at,
    least(s.to_at, $until) AS to_at
FROM all_spans AS s
WHERE greatest(s.from_at, $since) < least(s.to_at, $until)
