-- Who holds which GPUs of the fleet when. A node's eight GPUs are one, two, four or eight slots (a
-- MIG node: three instances per GPU), each slot a row of turns: training, serving, notebook, held
-- and idle, free. About a quarter of the slots change hands per day.
CREATE OR REPLACE TEMP TABLE turns AS
WITH layouts (layout, sizes) AS (
    VALUES
    (0, [8]),
    (1, [4, 4]),
    (2, [4, 2, 1, 1]),
    (3, [2, 2, 2, 2]),
    (4, [1, 1, 1, 1, 1, 1, 1, 1]),
    (5, list_resize([1], 24, 1))
),

slots AS (
    SELECT
        n.node,
        l.layout,
        l.sizes[s.slot] AS size,
        s.slot,
        list_sum(l.sizes[:s.slot - 1])::BIGINT AS first_part
    FROM (
        SELECT
            node,
            CASE WHEN node % 50 = 7 THEN 5 ELSE hash(node) % 5 END AS layout
        FROM range($gpus // 8) AS g (node) -- noqa: AL05
    ) AS n
    INNER JOIN layouts AS l ON n.layout = l.layout
    INNER JOIN range(1, 25) AS s (slot) ON s.slot <= len(l.sizes)
),

random_turns AS (
    SELECT
        s.*,
        t.turn,
        (hash(s.node, s.slot, t.turn, 'kind') % 10000) / 10000.0 AS u,
        -ln(1 - (hash(s.node, s.slot, t.turn, 'hours') % 10000) / 10000.0) AS length
    FROM slots AS s, range(80) AS t (turn)
),

timed AS (
    SELECT
        *,
        CASE
            WHEN u < 0.40 THEN 'train' WHEN u < 0.55 THEN 'serve' WHEN u < 0.65 THEN 'notebook'
            WHEN u < 0.80 THEN 'parked' ELSE 'free'
        END AS kind,
        sum(
            600 + round(
                3600 * length
                * CASE kind
                    WHEN 'serve' THEN 240 WHEN 'notebook' THEN 60 WHEN 'free' THEN 24 ELSE 72
                END
            )
        ) OVER (PARTITION BY node, slot ORDER BY turn) AS until_s
    FROM random_turns
)

SELECT
    node,
    layout,
    size,
    slot,
    coalesce(first_part, 0) AS first_part,
    turn,
    kind,
    TIMESTAMP '2026-09-29' + to_seconds(
        lag(until_s, 1, 0) OVER (PARTITION BY node, slot ORDER BY turn)
    ) AS from_at,
    TIMESTAMP '2026-09-29' + to_seconds(until_s) AS to_at
FROM timed
QUALIFY
    lag(until_s, 1, 0) OVER (PARTITION BY node, slot ORDER BY turn) < ($days + 2) * 86400
    AND until_s > 2 * 86400;

CREATE OR REPLACE TEMP TABLE parts AS
SELECT
    t.node,
    t.slot,
    t.layout = 5 AS mig,
    'GPU-' || md5((t.node * 8 + CASE WHEN mig THEN p.part // 3 ELSE p.part END)::VARCHAR) AS gpu,
    CASE WHEN mig THEN gpu || '/gi' || (p.part % 3 + 1) ELSE gpu END AS device,
    CASE WHEN mig THEN (3 - p.part % 3) / 7.0 ELSE 1 END AS weight
FROM (
    SELECT DISTINCT
        node,
        slot,
        layout,
        size,
        first_part
    FROM turns
) AS t
INNER JOIN range(24) AS p (part)
    ON t.first_part <= p.part AND p.part < t.first_part + t.size;
