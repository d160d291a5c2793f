-- The findings that need nothing more: an action on them took effect, and nobody reversed it.
SELECT DISTINCT
    cluster,
    finding
FROM acted
WHERE result = 'done' AND restored_at IS null AND finding IS NOT null
