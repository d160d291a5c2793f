-- Hours and days of a range whose audits passed; the hours that wait to be written again only with
-- $marked, for who has just audited them. Of an hour in which a cluster was left out the result is
-- of the other clusters.
SELECT
    a.period,
    a.bucket,
    a.bill_difference_usd
FROM audit AS a
ANTI JOIN unposted AS u
    ON
        a.period = '1h' AND a.bucket = date_trunc('hour', u.bucket)
        AND u.cluster IS null AND NOT $marked
WHERE
    a.digest = $digest
    AND a.failed = ''
    AND a.bucket >= date_trunc('day', $since::TIMESTAMP)
    AND a.bucket < $until
