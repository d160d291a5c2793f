-- The prices that other homes over the catalog stored, of every source, but those that have ended.
SELECT * -- noqa: AM04
FROM rate
WHERE list_contains($others, home) AND (valid_to IS null OR valid_to > $now)
