-- Hours of work that failures of each workload lost at most, since a checkpoint that was seen.
SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    max(epoch("end" - start)) / 3600 AS hours
FROM work_lost
WHERE "end" >= $since AND "end" < $until AND basis = 'measured'
GROUP BY ALL
ORDER BY ALL
