-- The stored incidents that touch the window and match the filters.
SELECT * -- noqa: AM04
FROM incident
WHERE
    coalesce("end", start) >= $since
    AND start < $until
    AND ($cluster::VARCHAR IS null OR cluster = $cluster)
    AND (
        $namespace::VARCHAR IS null
        OR list_contains(from_json(namespaces, '["VARCHAR"]'), $namespace)
    )
