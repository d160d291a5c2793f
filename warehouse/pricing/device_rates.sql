-- The best offer per device and stretch of time, by the device's weight.
SELECT
    d.cluster,
    d.device,
    greatest(d.from_at, t.from_at, k.from_at) AS from_at,
    least(d.to_at, t.to_at, k.to_at) AS to_at,
    t.loaded_usd_h * d.weight AS loaded_usd_h,
    t.gpu_usd_h * d.weight AS gpu_usd_h,
    t.source,
    t.reference,
    t.as_of,
    t.rank,
    t.committed
FROM spans AS d
INNER JOIN subjects AS k
    ON d.device_id = k.device_id AND d.to_at > k.from_at AND d.from_at < k.to_at
INNER JOIN stretches AS t
    ON
        k.kind = t.kind
        AND least(d.to_at, k.to_at) > t.from_at AND greatest(d.from_at, k.from_at) < t.to_at
WHERE d.kind <> 'unpartitioned'
ORDER BY d.cluster, d.device, from_at
