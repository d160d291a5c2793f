-- The rows of whole hours that the accounting step kept, in no order.
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device
)

SELECT
    g.number::INTEGER AS device,
    epoch_us(r.bucket) AS at,
    r.line,
    r.buckets,
    r.kind,
    r.still,
    r.interval_s,
    r.samples,
    r.power_w,
    r.still_w,
    r.energy_mj,
    r.traffic_bps,
    r.procs,
    r.kernel_age_s,
    r.context,
    r.moved,
    r.silent_us,
    r.spoken_us,
    r.peaks
FROM idle_row AS r
INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device
WHERE r.bucket >= $since AND r.bucket < $until AND r.device BETWEEN $first AND $last
