-- Activity, memory, power, temperature, clock and XID of the subject's devices together, on the
-- mean of each step.
WITH each AS (
    SELECT
        bucket,
        cluster,
        device,
        sum(act_mean * act_n) / nullif(sum(act_n), 0) AS activity,
        max(act_max) AS most,
        sum(mem_used_bytes_mean * mem_used_bytes_n) / nullif(sum(mem_used_bytes_n), 0) AS memory,
        sum(power_w_mean * power_w_n) / nullif(sum(power_w_n), 0) AS power,
        max(temp_c_max) AS temp,
        avg(sm_clock_mhz_mean) AS clock,
        nullif(max(xid_max), 0) AS xid
    FROM device_rollups
    GROUP BY bucket, cluster, device
),

together AS (
    SELECT
        bucket,
        avg(activity) AS activity,
        max(most) AS most,
        min(activity) AS least,
        sum(memory) AS memory,
        sum(power) AS power,
        max(temp) AS temp,
        avg(clock) AS clock,
        min(clock) AS least_clock,
        max(xid) AS xid,
        count(*) AS devices
    FROM each
    GROUP BY bucket
),

steps AS (
    SELECT
        unnest(
            generate_series(
                $since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 1 SECOND, to_seconds($step_s)
            )
        ) AS step
)

SELECT
    s.step AS at,
    100 * avg(t.activity) AS activity_pct,
    100 * max(t.most)::DOUBLE AS most_pct,
    100 * min(t.least)::DOUBLE AS least_pct,
    avg(t.memory) / 1e9 AS memory_gb,
    avg(t.power) AS power_w,
    max(t.temp)::DOUBLE AS temp_c,
    avg(t.clock) AS clock_mhz,
    min(t.least_clock) AS least_clock_mhz,
    max(t.xid)::DOUBLE AS xid,
    max(t.devices) AS devices
FROM steps AS s
LEFT JOIN together AS t ON s.step <= t.bucket AND s.step + to_seconds($step_s) > t.bucket
GROUP BY s.step
ORDER BY s.step ASC
