-- The findings of one workload, the worst first, with the columns of listed.sql.
SELECT * -- noqa: AM04
FROM chosen
WHERE cluster = $of_cluster AND workload = $of_workload
ORDER BY usd_rank DESC NULLS LAST, at_most_usd DESC NULLS LAST, gpu_hours DESC, id ASC
