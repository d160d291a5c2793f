-- Each host sample of those pods, and whether it shows work. The samples until $after_us after a
-- stretch cover its last minutes: a mean over the device's own interval hides activity that began
-- late in it.
SELECT
    a.piece,
    a.span,
    h.ts,
    h.serves,
    coalesce(h.cpu_cores - coalesce(h.sidecar_cores, 0) > a.cores + 1e-6, false)
    OR coalesce(h.net_bps >= $bytes_s, false)
    OR coalesce(h.fs_bps >= $bytes_s, false)
    OR coalesce(h.io_pressure_ratio >= $io_pressure, false) AS works
FROM held_pods AS a
INNER JOIN serving_load AS h
    ON
        a.cluster = h.cluster AND a.namespace = h.namespace AND a.pod = h.pod
        AND a.start_at <= h.ts AND a.end_at + to_microseconds($after_us) > h.ts
WHERE h.ts >= $since AND h.ts < $until
