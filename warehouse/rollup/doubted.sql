-- Samples that contradict the inventory or each other: of devices that several exporters report in
-- one bucket, on two nodes of the inventory or with another utilisation. An exporter is on the node
-- of its own address (`NODE via ADDRESS`, `collectors/frame.py`), else on the node that it names.
-- Where one exporter alone is on a node with room for the device, the samples of others are left
-- out (`dropped`). Else nobody knows: the samples of such a bucket say nothing, and the device
-- stays on its node (`home`). So it is with samples of two nodes at once (`NODE and NODE`).
WITH several AS (
    SELECT device
    FROM label
    GROUP BY device
    HAVING count(DISTINCT node) > 1
),

averages AS (
    SELECT
        s.device,
        s.node,
        s.at_us // 300000000 AS bucket,
        avg(s.gpu_util_pct) / 100 AS util,
        avg(s.gr_engine_active) AS engine
    FROM device_sample AS s
    SEMI JOIN several AS v ON s.device = v.device
    WHERE s.node IS NOT null AND NOT contains(s.node, ' and ')
    GROUP BY s.device, s.node, bucket
),

reported AS (
    SELECT
        r.*,
        split_part(r.node, ' via ', 1) AS named,
        n.node AS place,
        n.gpu_count
    FROM averages AS r
    LEFT JOIN address AS a
        ON a.cluster = $cluster AND a.address = nullif(split_part(r.node, ' via ', 2), '')
    LEFT JOIN node_eras AS n
        ON
            n.cluster = $cluster
            AND n.node = coalesce(
                a.node, nullif(split_part(r.node, ' via ', 2), ''), split_part(r.node, ' via ', 1)
            )
            AND make_timestamp(r.bucket * 300000000) >= n.holds_from
            AND make_timestamp(r.bucket * 300000000) < n.holds_to
),

contradicted AS (
    SELECT
        device,
        bucket
    FROM reported
    GROUP BY device, bucket
    HAVING
        count(DISTINCT place) > 1
        OR greatest(max(util) - min(util), max(engine) - min(engine)) > 0.25
        OR (min(util) <= 0.01 AND max(util) >= 0.05)
        OR (min(engine) <= 0.01 AND max(engine) >= 0.05)
),

placed AS (
    SELECT
        node,
        count(DISTINCT device) AS devices
    FROM (
        SELECT
            device,
            place AS node
        FROM reported
        UNION ALL BY NAME
        SELECT
            device,
            node
        FROM label
        WHERE parent IS null
        UNION ALL BY NAME
        SELECT
            device,
            node
        FROM device
        WHERE cluster = $cluster AND parent IS null AND last_seen > $first
    ) AS every_place
    GROUP BY node
),

homes AS (
    SELECT
        r.device,
        count(DISTINCT r.node) FILTER (p.devices <= r.gpu_count) AS believed,
        max(r.node) FILTER (p.devices <= r.gpu_count) AS node,
        max(r.place) FILTER (p.devices <= r.gpu_count) AS place,
        coalesce(
            max(r.named) FILTER (r.named = d.node), min(r.place), min(r.named)
        ) AS home
    FROM reported AS r
    INNER JOIN contradicted AS c ON r.device = c.device AND r.bucket = c.bucket
    LEFT JOIN placed AS p ON r.place = p.node
    LEFT JOIN device AS d ON d.cluster = $cluster AND r.device = d.device
    GROUP BY r.device
)

SELECT
    r.device,
    r.node,
    r.bucket,
    h.believed = 1 AS dropped,
    CASE WHEN h.believed = 1 THEN h.place ELSE h.home END AS home
FROM reported AS r
INNER JOIN homes AS h ON r.device = h.device
LEFT JOIN contradicted AS c ON r.device = c.device AND r.bucket = c.bucket
WHERE
    CASE
        WHEN h.believed = 1
            THEN r.node <> h.node AND (c.device IS NOT null OR r.place IS DISTINCT FROM h.place)
        ELSE c.device IS NOT null
    END
UNION ALL BY NAME
SELECT DISTINCT
    s.device,
    s.node,
    s.at_us // 300000000 AS bucket,
    false AS dropped,
    coalesce(d.node, split_part(s.node, ' and ', 1)) AS home
FROM device_sample AS s
LEFT JOIN device AS d ON d.cluster = $cluster AND s.device = d.device
WHERE contains(s.node, ' and ')
