-- `pod` has since when its labels and annotations were observed. Hours of a pod are its own team's:
-- months in which pods of one workload were of several teams are accounted anew.
INSERT INTO restatement BY NAME
WITH several AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        min(start) AS first_start,
        max("end") AS last_end
    FROM allocation
    WHERE start < "end"
    GROUP BY ALL
    HAVING count(DISTINCT team) > 1
)

SELECT DISTINCT
    d.cluster,
    date_trunc('month', d.bucket)::TIMESTAMP AS month,
    'due' AS cause,
    '' AS state
FROM ledger_1d AS d
INNER JOIN several AS s
    ON
        d.cluster = s.cluster AND d.namespace = s.namespace
        AND d.workload_kind = s.workload_kind AND d.workload = s.workload
        AND d.bucket < s.last_end AND d.bucket + INTERVAL 1 DAY > s.first_start
ANTI JOIN restatement AS r
    ON
        d.cluster = r.cluster AND r.cause = 'due'
        AND date_trunc('month', d.bucket)::TIMESTAMP = r.month;
