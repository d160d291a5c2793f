-- How busy the other devices of a partly idle workload were.
WITH span AS (
    SELECT
        unnest($spans) AS span,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        make_timestamp(unnest($starts)) AS start_at,
        make_timestamp(unnest($ends)) AS end_at
)

SELECT
    s.span,
    s.device,
    sum(r.act_n)::BIGINT AS samples,
    (
        sum(r.act_n) FILTER (WHERE r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0)
    )::BIGINT AS busy
FROM span AS s
INNER JOIN rollup_5m AS r
    ON
        s.cluster = r.cluster AND s.device = r.device
        AND s.start_at <= r.bucket AND s.end_at > r.bucket
WHERE r.bucket >= $since AND r.bucket < $until
GROUP BY s.span, s.device
ORDER BY s.span, s.device
