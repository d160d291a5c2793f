-- How many nodes each pool had in the window.
SELECT
    cluster,
    pool,
    count(DISTINCT node) AS nodes
FROM paid
GROUP BY ALL
