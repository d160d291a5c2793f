-- Claims cut where another team began to pay for their pod.
SELECT
    f.* REPLACE ( -- noqa: AM04
        coalesce(t.team, f.team) AS team,
        greatest(f.start_at, coalesce(t.holds_from, f.start_at)) AS start_at,
        least(f.end_at, coalesce(t.holds_to, f.end_at)) AS end_at
    )
FROM fitted AS f
LEFT JOIN paying_teams AS t
    ON
        f.cluster = t.cluster AND f.pod_uid = t.uid
        AND f.start_at < t.holds_to AND f.end_at > t.holds_from
