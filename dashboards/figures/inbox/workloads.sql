-- One row per workload: its worst finding, and the sums of all its findings.
WITH summed AS (
    SELECT
        cluster,
        workload,
        count(*) AS findings,
        sum(usd) AS usd_all,
        sum(usd_rank) AS usd_rank_all,
        sum(gpu_hours) AS gpu_hours_all,
        sum(at_most_gpu_hours) AS at_most_gpu_hours_all,
        sum(at_most_usd) AS at_most_usd_all,
        first(
            id
            ORDER BY
                usd_rank DESC NULLS LAST, at_most_usd DESC NULLS LAST, gpu_hours DESC, id ASC
        ) AS worst
    FROM chosen
    GROUP BY cluster, workload
),

most AS (
    SELECT *
    FROM summed
    ORDER BY
        usd_rank_all DESC NULLS LAST,
        at_most_usd_all DESC NULLS LAST,
        gpu_hours_all DESC,
        worst ASC
    LIMIT $most_workloads
)

SELECT
    c.*, -- noqa: AM04
    m.findings,
    m.usd_all,
    m.usd_rank_all,
    m.gpu_hours_all,
    m.at_most_gpu_hours_all,
    m.at_most_usd_all
FROM most AS m
INNER JOIN chosen AS c
    ON m.cluster = c.cluster AND m.workload = c.workload AND m.worst = c.id
QUALIFY row_number() OVER (PARTITION BY c.cluster, c.workload ORDER BY c.policy ASC) = 1
ORDER BY
    m.usd_rank_all DESC NULLS LAST,
    m.at_most_usd_all DESC NULLS LAST,
    m.gpu_hours_all DESC,
    c.id ASC
