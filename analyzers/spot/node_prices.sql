-- Prices of whole nodes in force in the window: on-demand by region, spot by zone as the mean over
-- the time that each price was in force, with the range of its changes.
WITH price_spans AS (
    SELECT
        provider,
        region,
        zone,
        instance_type,
        term,
        gpu_count,
        node_usd_h,
        as_of,
        reference,
        greatest(valid_from, $since) AS from_at,
        least(
            coalesce(
                valid_to,
                lead(valid_from) OVER (
                    PARTITION BY source, provider, region, zone, instance_type, term, cluster
                    ORDER BY valid_from
                ),
                $until
            ),
            $until
        ) AS to_at
    FROM rate
    WHERE
        instance_type <> ''
        AND node_usd_h > 0
        AND source <> 'spot-estimate'
        AND term IN ('spot', 'on-demand')
        AND cluster = ''
        AND valid_from < $until
        AND (valid_to IS null OR valid_to > $since)
)

SELECT
    provider,
    region,
    zone,
    instance_type,
    term,
    max(gpu_count) AS gpu_count,
    sum((node_usd_h * (epoch(to_at) - epoch(from_at)))::DECIMAL(38, 12))::DOUBLE
    / sum(epoch(to_at) - epoch(from_at)) AS usd_h,
    arg_max(node_usd_h::DOUBLE, from_at) AS last_usd_h,
    min(node_usd_h::DOUBLE) AS low_usd_h,
    max(node_usd_h::DOUBLE) AS high_usd_h,
    count(*) AS prices,
    max(as_of) AS as_of,
    arg_max(reference, from_at) AS reference
FROM price_spans
WHERE to_at > from_at
GROUP BY provider, region, zone, instance_type, term
ORDER BY ALL
