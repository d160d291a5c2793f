-- Per cell: unallocated time. `rest_s` = what partial holders left of a device, `vacant_s` = time
-- without any holder, `hidden` = the part in which a pod that cannot be read may have it. `pool` =
-- the samples that name no holder; they are spread over all the seconds that they may belong to
-- (`over_s`). `spare_s` = samples of a partial holder beyond its share.
WITH downs AS (
    SELECT
        c.device_id,
        c.cell,
        sum(epoch(least(c.to_at, d.to_at)) - epoch(greatest(c.from_at, d.from_at))) AS down_s
    FROM cells AS c
    INNER JOIN down AS d ON c.device_id = d.device_id
    WHERE d.from_at < c.to_at AND d.to_at > c.from_at
    GROUP BY c.device_id, c.cell
),

hides AS (
    SELECT
        c.device_id,
        c.cell,
        sum(epoch(least(c.to_at, u.to_at)) - epoch(greatest(c.from_at, u.from_at))) AS hidden_s
    FROM cells AS c
    INNER JOIN unreadable AS u ON c.device_id = u.device_id
    WHERE u.from_at < c.to_at AND u.to_at > c.from_at
    GROUP BY c.device_id, c.cell
),

capacity AS (
    SELECT
        device_id,
        bucket,
        cell,
        any_value(kind) AS kind,
        sum(epoch(to_at) - epoch(from_at)) AS cap_s
    FROM cells
    GROUP BY device_id, bucket, cell
),

holders_seen AS (
    SELECT
        device_id,
        cell,
        sum(own_s::DECIMAL(18, 9))::DOUBLE AS own_s,
        (sum(own_s::DECIMAL(18, 9)) FILTER (WHERE NOT named))::DOUBLE AS unnamed_s,
        max(time_s) AS longest_s,
        (
            sum((covered_s * (1 - used))::DECIMAL(18, 9)) FILTER (WHERE named AND own_s < time_s)
        )::DOUBLE AS spare_s
    FROM claimed
    GROUP BY device_id, cell
),

pool AS (
    SELECT
        l.device_id,
        l.cell,
        sum(l.idle_s::DECIMAL(18, 9))::DOUBLE AS idle_s,
        sum(l.low_s::DECIMAL(18, 9))::DOUBLE AS low_s,
        sum(l.busy_s::DECIMAL(18, 9))::DOUBLE AS busy_s,
        sum(l.covered_s::DECIMAL(18, 9))::DOUBLE AS covered_s,
        sum(l.effective * (l.idle_s + l.low_s + l.busy_s))
        / nullif(
            sum(l.idle_s + l.low_s + l.busy_s) FILTER (WHERE l.effective IS NOT null), 0
        ) AS effective
    FROM signal_seconds AS l
    ANTI JOIN plain AS p ON l.device_id = p.device_id AND l.cell = p.bucket
    ANTI JOIN holder_seconds AS h
        ON l.device_id = h.device_id AND l.cell = h.cell AND l.owner_id = h.owner_id
    GROUP BY l.device_id, l.cell
),

free_time AS (
    SELECT
        c.*,
        coalesce(d.down_s, 0) AS down_s,
        coalesce(u.hidden_s, 0) AS hidden_s,
        coalesce(h.own_s, 0) AS own_s,
        coalesce(h.unnamed_s, 0) AS unnamed_s,
        coalesce(h.spare_s, 0) AS spare_s,
        least(c.cap_s, greatest(coalesce(h.longest_s, 0), coalesce(h.own_s, 0))) AS busy_time_s,
        coalesce(p.idle_s, 0) AS idle_s,
        coalesce(p.low_s, 0) AS low_s,
        coalesce(p.busy_s, 0) AS busy_s,
        coalesce(p.covered_s, 0) AS covered_s,
        p.effective
    FROM capacity AS c
    LEFT JOIN holders_seen AS h ON c.device_id = h.device_id AND c.cell = h.cell
    LEFT JOIN pool AS p ON c.device_id = p.device_id AND c.cell = p.cell
    LEFT JOIN downs AS d ON c.device_id = d.device_id AND c.cell = d.cell
    LEFT JOIN hides AS u ON c.device_id = u.device_id AND c.cell = u.cell
)

SELECT
    device_id,
    bucket,
    cell,
    kind,
    cap_s,
    least(1, down_s / cap_s) AS down,
    least(1, hidden_s / cap_s) AS hidden,
    spare_s,
    idle_s,
    low_s,
    busy_s,
    covered_s,
    effective,
    greatest(0, busy_time_s - own_s) AS rest_s,
    greatest(0, cap_s - busy_time_s) AS vacant_s,
    CASE
        WHEN abs(covered_s - (cap_s - own_s + unnamed_s)) <= 0.001 * (cap_s - own_s + unnamed_s)
            THEN covered_s
        ELSE greatest(cap_s - own_s + unnamed_s, covered_s)
    END AS over_s
FROM free_time
