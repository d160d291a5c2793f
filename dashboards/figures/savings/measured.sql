-- What the actions begun in the window saved, a row per action and kind of dollars.
SELECT * -- noqa: AM04
FROM saving
WHERE
    start >= $since AND start < $until
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND ($team::VARCHAR IS null OR team = $team)
    AND ($namespace::VARCHAR IS null OR namespace = $namespace)
