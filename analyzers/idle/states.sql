-- Five minutes of `signal` that are not idle throughout. Under the rules `among` and `steady`
-- (`low`) idle readings are work; in frozen ones nothing is known; in the others an active reading
-- is no blip of an idle stretch. Rows without any idle second have no idle reading. A row for each
-- holder of the device, in no order: they are millions. So they are narrow (the five minutes are
-- counted since 1970; `bits` are 1, and 2 where low, 4 where frozen), a rule is a number by a
-- function, which the engine evaluates once per entry of a file's dictionary (`=` compares each
-- row), and the join alone prunes files to the devices.
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device
),

signal_rows AS (
    SELECT
        cluster,
        device,
        bucket,
        idle_s > 0 AND low_s + busy_s > 0 AS mixed,
        list_position(['among', 'steady', 'frozen', 'burst', 'stretch'], rule) AS place
    FROM signal
    WHERE bucket >= time_bucket(INTERVAL 5 MINUTE, $since::TIMESTAMP) AND bucket < $until
)

SELECT
    g.number::INTEGER AS device,
    (epoch_us(r.bucket) // 300000000)::INTEGER AS five_minutes,
    CASE WHEN r.place <= 2 THEN 3 WHEN r.place = 3 THEN 5 ELSE 1 END::UTINYINT AS bits
FROM signal_rows AS r
INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device
WHERE coalesce(r.place < 5, r.mixed)
