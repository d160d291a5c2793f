-- Per cell: what nobody held. `rest_s` was left of devices that were held in part, `vacant_s` was
-- held by nobody at all; `pool` are the looks that name no holder, spread over all they may be
-- about: `over_s` seconds. `spare_s` are looks of a part-holder beyond its part.
WITH capacity AS (
    SELECT
        c.cluster,
        c.device,
        c.bucket,
        c.cell,
        any_value(c.kind) AS kind,
        sum(epoch(c.to_at) - epoch(c.from_at)) AS cap_s,
        coalesce(
            sum(epoch(least(c.to_at, d.to_at)) - epoch(greatest(c.from_at, d.from_at)))
            FILTER (WHERE d.from_at IS NOT null),
            0
        ) AS down_s
    FROM cells AS c
    LEFT JOIN down AS d
        ON
            c.cluster = d.cluster AND c.node = d.node
            AND c.to_at > d.from_at AND c.from_at < d.to_at
    GROUP BY c.cluster, c.device, c.bucket, c.cell
),

holders AS (
    SELECT
        cluster,
        device,
        cell,
        sum(own_s) AS own_s,
        sum(own_s) FILTER (WHERE NOT named) AS unnamed_s,
        max(time_s) AS longest_s,
        sum(covered_s * (1 - used)) FILTER (WHERE named AND own_s < time_s) AS spare_s
    FROM claimed
    GROUP BY cluster, device, cell
),

pool AS (
    SELECT
        l.cluster,
        l.device,
        l.cell,
        sum(l.idle_s) AS idle_s,
        sum(l.low_s) AS low_s,
        sum(l.busy_s) AS busy_s,
        sum(l.covered_s) AS covered_s
    FROM looks AS l
    ANTI JOIN held AS h
        ON
            l.cluster = h.cluster AND l.device = h.device AND l.cell = h.cell
            AND l.namespace = h.namespace AND l.pod = h.pod
    GROUP BY l.cluster, l.device, l.cell
),

free_time AS (
    SELECT
        c.*,
        coalesce(h.own_s, 0) AS own_s,
        coalesce(h.unnamed_s, 0) AS unnamed_s,
        coalesce(h.spare_s, 0) AS spare_s,
        least(c.cap_s, greatest(coalesce(h.longest_s, 0), coalesce(h.own_s, 0))) AS busy_time_s,
        coalesce(p.idle_s, 0) AS idle_s,
        coalesce(p.low_s, 0) AS low_s,
        coalesce(p.busy_s, 0) AS busy_s,
        coalesce(p.covered_s, 0) AS covered_s
    FROM capacity AS c
    LEFT JOIN holders AS h
        ON c.cluster = h.cluster AND c.device = h.device AND c.cell = h.cell
    LEFT JOIN pool AS p
        ON c.cluster = p.cluster AND c.device = p.device AND c.cell = p.cell
)

SELECT
    cluster,
    device,
    bucket,
    cell,
    kind,
    cap_s,
    least(1, down_s / cap_s) AS down,
    spare_s,
    idle_s,
    low_s,
    busy_s,
    covered_s,
    greatest(0, busy_time_s - own_s) AS rest_s,
    greatest(0, cap_s - busy_time_s) AS vacant_s,
    CASE
        WHEN abs(covered_s - (cap_s - own_s + unnamed_s)) <= 0.001 * (cap_s - own_s + unnamed_s)
            THEN covered_s
        ELSE greatest(cap_s - own_s + unnamed_s, covered_s)
    END AS over_s
FROM free_time
