-- The traffic of some jobs' devices over their links in the hours in which they worked.
WITH job_devices AS (
    SELECT
        m.gang,
        m.cluster,
        m.device,
        make_timestamp(m.since) AS since_at, -- noqa: RF01
        make_timestamp(m.until) AS until_at -- noqa: RF01
    FROM (
        SELECT
            unnest(
                from_json(
                    $devices,
                    '[{
                        "gang": "BIGINT", "cluster": "VARCHAR", "device": "VARCHAR",
                        "since": "BIGINT", "until": "BIGINT"
                    }]'
                )
            ) AS m
    ) AS listed
)

SELECT
    m.gang,
    count(*) AS hours,
    avg(r.pcie_bps_max) AS pcie_bps,
    avg(r.nvlink_bps_max) AS nvlink_bps
FROM job_devices AS m
INNER JOIN rollup_1h AS r
    ON
        m.cluster = r.cluster AND m.device = r.device
        AND m.since_at <= r.bucket AND m.until_at > r.bucket
WHERE
    r.bucket >= $since AND r.bucket < $until
    AND r.act_n > 0 AND r.low_s + r.busy_s >= 0.5 * r.covered_s
GROUP BY m.gang
ORDER BY m.gang
