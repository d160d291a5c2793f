-- Saveable: the last analysis has it, and no action took effect that stands; its dollars are a
-- list, one per cluster. Acted: an action did. A case is one or the other: together they are
-- what was identified. Approved is part of both. Beside them stands the bound of hours in
-- use. Verified: the actions that were measured.
SELECT
    count(*) FILTER (WHERE is_saveable AND gpu_hours > 0) AS saveable,
    coalesce(sum(gpu_hours) FILTER (WHERE is_saveable), 0) AS saveable_gpu_hours,
    (
        SELECT coalesce(list(of_cluster.usd), [])
        FROM (
            SELECT sum(usd) AS usd
            FROM cases
            WHERE is_saveable
            GROUP BY cluster
        ) AS of_cluster
    ) AS saveable_usd,
    sum(cash_usd) FILTER (WHERE is_saveable) AS cash_usd,
    sum(commitment_usd) FILTER (WHERE is_saveable) AS commitment_usd,
    coalesce(sum(at_most_gpu_hours) FILTER (WHERE is_saveable), 0) AS at_most_gpu_hours,
    sum(at_most_usd) FILTER (WHERE is_saveable) AS at_most_usd,
    count(*) FILTER (WHERE is_approved) AS approved,
    coalesce(sum(gpu_hours) FILTER (WHERE is_approved), 0) AS approved_gpu_hours,
    sum(usd) FILTER (WHERE is_approved) AS approved_usd,
    count(*) FILTER (WHERE took) AS acted,
    coalesce(sum(gpu_hours) FILTER (WHERE took), 0) AS acted_gpu_hours,
    sum(usd) FILTER (WHERE took) AS acted_usd,
    (SELECT count(DISTINCT action) FROM measured) AS verified,
    (SELECT coalesce(sum(gpu_hours), 0) FROM measured) AS verified_gpu_hours,
    (SELECT sum(usd) FROM measured) AS verified_usd,
    (SELECT count(DISTINCT action) FILTER (WHERE is_reversed) FROM measured) AS reversed,
    EXISTS (SELECT 1 FROM parsed_findings) OR EXISTS (
        SELECT 1
        FROM plugin_run
        WHERE
            kind = 'analyzer'
            AND result = 'done'
            AND start < $until::TIMESTAMP
            AND "end" > $since::TIMESTAMP
    ) AS is_analyzed
FROM cases
