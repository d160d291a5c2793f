-- Of these, those to write again that are not marked.
SELECT DISTINCT hour AS bucket
FROM changed_hours
WHERE NOT is_waiting
EXCEPT
SELECT bucket
FROM unposted
WHERE cluster IS null
