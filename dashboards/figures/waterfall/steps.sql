-- What could be saved, by analyzer, kind of saving and evidence; no GPU-hour twice.
SELECT
    analyzer,
    saving,
    evidence,
    count(DISTINCT id) AS findings,
    sum(gpu_hours) AS gpu_hours,
    sum(usd) AS usd,
    max(found_at) AS found_at
FROM advice
WHERE gpu_hours > 0
GROUP BY ALL
ORDER BY usd DESC NULLS LAST, gpu_hours DESC, analyzer ASC, saving ASC, evidence ASC
