-- Where lifetimes ended and began that the incoming devices extend; null where none is extended.
SELECT
    min(d.last_seen) FILTER (WHERE i.last_seen > d.last_seen) AS last_seen,
    max(d.first_seen) FILTER (WHERE i.first_seen < d.first_seen) AS first_seen
FROM incoming AS i
INNER JOIN device AS d ON i.cluster = d.cluster AND i.device = d.device
