-- Dollars by pool and state.
SELECT
    pool AS name,
    state,
    sum(usd) AS usd
FROM paid
GROUP BY pool, state
HAVING sum(usd) > 0
ORDER BY usd DESC, name ASC, state ASC
