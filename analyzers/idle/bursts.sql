-- Of five minutes with a reading from the exit threshold on, those in which devices worked for a
-- moment: more energy than that of an idle device, or more power where no counter of it is read. A
-- reading alone may be a node's own check of its GPU. The counter's increase may come with the next
-- scrape.
WITH gpu AS (
    SELECT
        unnest($numbers) AS number,
        unnest($clusters) AS cluster,
        unnest($devices) AS device,
        make_timestamp(unnest($at_us)) AS bucket
)

SELECT DISTINCT
    g.number::BIGINT AS number,
    epoch_us(r.bucket) AS at_us
FROM rollup_5m AS r
INNER JOIN gpu AS g ON r.cluster = g.cluster AND r.device = g.device AND r.bucket = g.bucket
INNER JOIN signal AS s ON r.cluster = s.cluster AND r.device = s.device AND r.bucket = s.bucket
LEFT JOIN rollup_5m AS n
    ON
        r.cluster = n.cluster AND r.device = n.device
        AND r.bucket + INTERVAL 5 MINUTE = n.bucket
        AND n.bucket > $since AND n.bucket <= $until
WHERE
    r.bucket >= $since AND r.bucket < $until
    AND s.bucket >= $since AND s.bucket < $until
    AND r.act_max >= $exit_threshold - 1e-6 AND r.conflict_s = 0
    AND CASE
        WHEN r.energy_mj IS null THEN r.power_w_max > s.band_w + $margin_w
        ELSE greatest(r.energy_mj, n.energy_mj) > 300000 * (s.band_w + $margin_w)
    END
ORDER BY number, at_us
