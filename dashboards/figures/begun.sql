-- The last action on each finding, and what has become of it. It may be newer than the plan: what
-- the turn that wrote the plan has begun since is in it until the next turn.
SELECT
    cluster,
    finding,
    max(ts) AS ts,
    arg_max(CASE WHEN restored_at IS null THEN result ELSE 'undone' END, ts) AS result
FROM acted
GROUP BY ALL
