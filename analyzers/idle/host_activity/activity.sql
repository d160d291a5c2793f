-- When the pods of stretches were active apart from their devices, and when that was known: one row
-- per host sample or activity.
SELECT
    span,
    epoch_us(from_at) AS from_us,
    epoch_us(to_at) AS to_us,
    epoch_us(known_at) AS known_us
FROM intervals
ORDER BY span, from_us, to_us
