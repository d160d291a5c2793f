-- The savings, each beside the hours without advice; one row of these alone where nothing is saved.
SELECT
    u.unadvised_gpu_hours,
    s.* -- noqa: AM04
FROM unadvised AS u
LEFT JOIN steps AS s ON true
ORDER BY
    s.usd DESC NULLS LAST,
    s.at_most_usd DESC NULLS LAST,
    s.gpu_hours DESC,
    s.analyzer ASC,
    s.saving ASC
