-- The window of each kind, cut wherever an offer begins or ends, with the best offer of each
-- stretch. A live price outranks the rate card at the same rank; a newer price outranks an older
-- one.
WITH edges AS (
    SELECT
        kind,
        greatest(valid_from, $since) AS edge_at
    FROM offers
    UNION
    SELECT
        kind,
        valid_to
    FROM offers
    WHERE valid_to < $until
),

stretched AS (
    SELECT
        kind,
        edge_at AS from_at,
        coalesce(lead(edge_at) OVER (PARTITION BY kind ORDER BY edge_at), $until) AS to_at
    FROM edges
)

SELECT
    s.kind,
    s.from_at,
    s.to_at,
    o.rank,
    o.source,
    o.reference,
    o.as_of,
    o.loaded_usd_h,
    o.gpu_usd_h
FROM stretched AS s
INNER JOIN offers AS o
    ON
        s.kind = o.kind AND s.from_at >= o.valid_from
        AND coalesce(o.valid_to, $until) >= s.to_at
WHERE s.from_at < s.to_at
QUALIFY
    row_number() OVER (
        PARTITION BY s.kind, s.from_at
        ORDER BY
            o.rank ASC,
            o.source = 'rate-card',
            o.valid_from DESC,
            o.region ASC,
            o.zone ASC,
            o.source ASC
    ) = 1
