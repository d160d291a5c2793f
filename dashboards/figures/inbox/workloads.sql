-- One row per workload: its worst finding, and the sums of all its findings.
WITH numbered AS (
    SELECT
        *,
        dense_rank() OVER (ORDER BY cluster, workload) AS workload_number
    FROM chosen
)

SELECT
    * EXCLUDE (workload_number), -- noqa: AM04
    count(*) OVER of_workload AS findings,
    sum(usd) OVER of_workload AS usd_all,
    sum(usd_rank) OVER of_workload AS usd_rank_all,
    sum(gpu_hours) OVER of_workload AS gpu_hours_all,
    count(*) OVER () AS all_findings,
    count(*) FILTER (WHERE evidence = 'confirmed') OVER () AS all_confirmed,
    sum(usd) OVER () AS all_usd,
    sum(gpu_hours) OVER () AS all_gpu_hours,
    max(workload_number) OVER () AS all_workloads
FROM numbered
WINDOW of_workload AS (PARTITION BY cluster, workload)
QUALIFY
    row_number() OVER (
        PARTITION BY cluster, workload
        ORDER BY usd_rank DESC NULLS LAST, gpu_hours DESC, id ASC
    ) = 1
ORDER BY usd_rank_all DESC NULLS LAST, gpu_hours_all DESC, id ASC
LIMIT $most_workloads
