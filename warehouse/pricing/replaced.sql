-- What a home's new prices replace: none of other homes whose prices stay, of its settings' prices
-- those of its cluster, and of others' that no longer stay those of any cluster that it prices.
WITH running AS (
    SELECT source
    FROM rate
    WHERE nodes > 0 AND valid_to > $now
)

SELECT
    *, -- noqa: AM04
    rowid
FROM rate
WHERE
    (list_contains($sources, source) OR source IN (SELECT running.source FROM running))
    AND NOT coalesce(list_contains($others, home), false)
    AND (
        list_contains($clusters, cluster)
        OR (source <> 'settings' AND coalesce(home, '') IN ('', $home))
    )
