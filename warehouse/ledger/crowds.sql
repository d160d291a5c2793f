-- Devices whose seconds must be counted one by one: several pods hold them at the same time, a pod
-- holds them in part, they are out of service for a while, or a pod that cannot be read has or may
-- have them.
WITH turns AS (
    SELECT
        device_id,
        share,
        unreadable,
        start_at,
        max(end_at) OVER (
            PARTITION BY device_id
            ORDER BY start_at, end_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS held_until
    FROM owners
)

SELECT device_id
FROM turns
WHERE share < 1 OR held_until > start_at OR unreadable
UNION
SELECT device_id
FROM down
UNION
SELECT device_id
FROM unreadable
