-- New errors of links and of memory that their counters show in five minutes; null = not exported.
WITH growth AS (
    SELECT
        s.ts,
        s.nvlink_crc - lag(s.nvlink_crc) OVER device_time AS crc,
        s.nvlink_replay - lag(s.nvlink_replay) OVER device_time AS replay,
        s.pcie_replay - lag(s.pcie_replay) OVER device_time AS pcie,
        s.ecc_dbe - lag(s.ecc_dbe) OVER device_time AS ecc
    FROM sample AS s
    WHERE
        s.cluster = $cluster
        AND s.ts >= $since
        AND s.ts < $until
        AND s.device IN (SELECT d.device FROM job_devices AS d)
    WINDOW device_time AS (PARTITION BY s.device ORDER BY s.ts)
)

SELECT
    time_bucket(INTERVAL 5 MINUTE, ts) AS bucket,
    sum(CASE WHEN crc < 0 THEN 0 ELSE crc END) AS nvlink_crc,
    sum(CASE WHEN replay < 0 THEN 0 ELSE replay END) AS nvlink_replay,
    sum(CASE WHEN pcie < 0 THEN 0 ELSE pcie END) AS pcie_replay,
    sum(CASE WHEN ecc < 0 THEN 0 ELSE ecc END) AS ecc_dbe
FROM growth
GROUP BY ALL
