-- The window of each kind, cut wherever an offer or a commitment's hour begins or ends, with the
-- price of each stretch: the best offer's for what no commitment pays. A live price outranks the
-- rate card at the same rank; a newer price outranks an older one. What a site sets itself (rank 1
-- to 4) outranks commitments.
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
    UNION
    SELECT
        kind,
        greatest(from_at, $since)
    FROM covered
    UNION
    SELECT
        kind,
        to_at
    FROM covered
    WHERE to_at < $until
),

stretched AS (
    SELECT
        kind,
        edge_at AS from_at,
        coalesce(lead(edge_at) OVER (PARTITION BY kind ORDER BY edge_at), $until) AS to_at
    FROM edges
),

best AS (
    SELECT
        s.kind,
        s.from_at,
        o.* EXCLUDE (kind)
    FROM stretched AS s
    INNER JOIN offers AS o
        ON
            s.kind = o.kind AND s.from_at >= o.valid_from
            AND coalesce(o.valid_to, $until) >= s.to_at
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
),

committed AS (
    SELECT
        s.kind,
        s.from_at,
        c.* EXCLUDE (kind, from_at, to_at),
        sum(c.part) OVER in_turn AS paid,
        least(1, paid) - least(1, paid - c.part) AS share
    FROM stretched AS s
    INNER JOIN covered AS c ON s.kind = c.kind AND s.from_at >= c.from_at AND s.from_at < c.to_at
    WINDOW in_turn AS (PARTITION BY s.kind, s.from_at ORDER BY c.turn)
),

committed_sums AS (
    SELECT
        kind,
        from_at,
        least(1, max(paid)) AS share,
        sum((share * loaded_usd_h)::DECIMAL(38, 12))::DOUBLE AS loaded_usd_h,
        sum((share * gpu_usd_h)::DECIMAL(38, 12))::DOUBLE AS gpu_usd_h,
        max(as_of) AS as_of,
        first(source ORDER BY turn) AS source,
        string_agg(reference, ' and ' ORDER BY turn) FILTER (WHERE share > 0) AS reference
    FROM committed
    GROUP BY kind, from_at
)

SELECT
    s.kind,
    s.from_at,
    s.to_at,
    CASE WHEN c.share > 0 THEN 5 ELSE b.rank END AS rank,
    coalesce(c.source, b.source) AS source,
    CASE
        WHEN c.share < 1
            THEN printf('%.0f %% %s, else %s', 100 * c.share, c.reference, b.reference)
        ELSE coalesce(c.reference, b.reference)
    END AS reference,
    greatest(c.as_of, b.as_of) AS as_of,
    coalesce(b.estimated AND coalesce(c.share, 0) < 1, false) AS estimated,
    CASE
        WHEN c.share = 1 THEN c.loaded_usd_h
        WHEN c.share > 0 THEN c.loaded_usd_h + (1 - c.share) * b.loaded_usd_h
        ELSE b.loaded_usd_h
    END AS loaded_usd_h,
    CASE
        WHEN c.share = 1 THEN c.gpu_usd_h
        WHEN c.share > 0 THEN c.gpu_usd_h + (1 - c.share) * b.gpu_usd_h
        ELSE b.gpu_usd_h
    END AS gpu_usd_h,
    coalesce(c.share, 0) AS committed,
    CASE WHEN c.share > 0 THEN c.loaded_usd_h ELSE 0 END AS committed_usd_h,
    CASE WHEN c.share > 0 THEN c.gpu_usd_h ELSE 0 END AS committed_gpu_usd_h
FROM stretched AS s
LEFT JOIN best AS b ON s.kind = b.kind AND s.from_at = b.from_at
LEFT JOIN committed_sums AS c
    ON s.kind = c.kind AND s.from_at = c.from_at AND coalesce(b.rank, 5) > 4
WHERE s.from_at < s.to_at AND (c.share = 1 OR b.rank IS NOT null)
