-- The findings that match a person's choices, with the columns of listed.sql.
SELECT * -- noqa: AM04
FROM listed
WHERE
    ($analyzer::VARCHAR IS null OR analyzer = $analyzer)
    AND ($kind::VARCHAR IS null OR kind = $kind)
    AND ($evidence::VARCHAR IS null OR evidence = $evidence)
    AND ($snoozed OR snoozed_until IS null OR snoozed_until <= $until::TIMESTAMP)
