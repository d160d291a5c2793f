-- Five minutes of `signal` that are not idle throughout. Under the rules `among` and `steady`
-- (`low`) idle readings are work; in frozen ones nothing is known; in the others an active reading
-- is no blip of an idle stretch. Rows without any idle second have no idle reading. A row for each
-- holder of the device, in no order: they are millions.
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device
)

SELECT
    g.number::BIGINT AS device,
    epoch_us(r.bucket) AS bucket_us,
    coalesce(r.rule IN ('among', 'steady'), FALSE) AS low,
    coalesce(r.rule = 'frozen', FALSE) AS frozen
FROM signal AS r
INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device
WHERE
    r.bucket >= time_bucket(INTERVAL 5 MINUTE, $since::TIMESTAMP) AND r.bucket < $until
    AND r.device BETWEEN $first AND $last
    AND (
        r.rule IN ('among', 'steady', 'frozen', 'burst')
        OR (r.rule IS DISTINCT FROM 'stretch' AND r.idle_s > 0 AND r.low_s + r.busy_s > 0)
    )
