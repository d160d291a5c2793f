-- The lowest price of a GPU-hour by model and term, of the rates in force at the window's end.
SELECT
    gpu_model AS model,
    term,
    min(node_usd_h / nullif(gpu_count, 0)) AS usd_h
FROM rate
WHERE
    valid_from < $until::TIMESTAMP
    AND (valid_to IS null OR valid_to >= $until::TIMESTAMP)
    AND node_usd_h > 0
    AND term IN ('on-demand', 'reserved')
GROUP BY ALL
ORDER BY ALL
