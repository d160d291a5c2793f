-- Days with telemetry: rolled up in the lake, or archived. Only names of archived files are read.
SELECT DISTINCT date_trunc('day', bucket)::TIMESTAMP AS day
FROM rollup_1h
WHERE bucket >= $first
UNION
SELECT day
FROM cold_file
WHERE noun IN ('sample', 'rollup_5m', 'rollup_1h') AND day >= $first
ORDER BY day
