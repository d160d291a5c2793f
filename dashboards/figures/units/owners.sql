-- The cost of a working hour: everything paid for a name over its working hours. Namespaces and
-- pools of two clusters with equal names are two.
WITH keyed AS (
    SELECT
        CASE $by
            WHEN 'team' THEN team
            WHEN 'namespace' THEN namespace
            WHEN 'model' THEN model
            WHEN 'pool' THEN pool
            WHEN 'cluster' THEN cluster
        END AS name,
        CASE WHEN $by IN ('namespace', 'pool') THEN cluster END AS cluster,
        state,
        gpu_hours,
        usd
    FROM paid
)

SELECT
    name,
    cluster,
    sum(usd) AS usd,
    sum(gpu_hours) AS gpu_hours,
    coalesce(sum(gpu_hours) FILTER (WHERE state = 'productive'), 0) AS productive_gpu_hours,
    sum(usd)::DOUBLE / nullif(sum(gpu_hours) FILTER (WHERE usd IS NOT null), 0)
        AS usd_per_gpu_hour,
    CASE
        WHEN productive_gpu_hours >= $least THEN sum(usd)::DOUBLE / productive_gpu_hours
    END AS usd_per_productive_gpu_hour
FROM keyed
GROUP BY name, cluster
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, name ASC, cluster ASC
