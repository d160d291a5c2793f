-- The findings whose ids begin so: those of the site, and those that only a trial has.
SELECT
    id,
    document
FROM finding
WHERE starts_with(id, $prefix)
UNION ALL
SELECT
    id,
    document
FROM trial_finding
WHERE
    starts_with(id, $prefix)
    AND id NOT IN (SELECT f.id FROM finding AS f)
ORDER BY id
LIMIT 10
