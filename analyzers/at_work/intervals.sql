-- When the pods of each stretch were at work beside their devices (at_work/told.sql). What is less
-- than $apart_us apart is one interval.
WITH reached AS (
    SELECT
        span,
        epoch_us(from_at) AS from_us,
        epoch_us(to_at) AS to_us,
        max(epoch_us(to_at)) OVER (
            PARTITION BY span ORDER BY from_at, to_at
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before_us
    FROM told
),

islands AS (
    SELECT
        span,
        from_us,
        to_us,
        sum((before_us IS null OR from_us - before_us >= $apart_us)::INTEGER) OVER (
            PARTITION BY span ORDER BY from_us, to_us
        ) AS island
    FROM reached
)

SELECT
    span,
    min(from_us) AS from_us,
    max(to_us) AS to_us
FROM islands
GROUP BY span, island
ORDER BY span, from_us
