-- On which node each device of the ledger is, from when to when: all of time. A bucket has one
-- node, that of its middle.
WITH placed AS (
    SELECT
        device_id,
        node,
        from_at
    FROM spans
    UNION ALL BY NAME
    SELECT DISTINCT
        device_id,
        node,
        $since AS from_at
    FROM untracked
),

starts AS (
    SELECT
        device_id,
        node,
        CASE
            WHEN lag(from_at) OVER of_device IS null THEN '-infinity'::TIMESTAMP
            ELSE
                time_bucket(
                    to_seconds($step_s),
                    from_at + to_seconds($step_s / 2) - INTERVAL 1 MICROSECOND
                )
        END AS holds_from
    FROM placed
    WINDOW of_device AS (PARTITION BY device_id ORDER BY from_at)
)

SELECT
    s.device_id,
    d.cluster,
    d.device,
    s.node,
    d.model,
    s.holds_from,
    coalesce(
        lead(s.holds_from) OVER (PARTITION BY s.device_id ORDER BY s.holds_from), 'infinity'
    ) AS holds_to
FROM starts AS s
INNER JOIN devices AS d ON s.device_id = d.device_id
