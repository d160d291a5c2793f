-- noqa: disable=CP02
-- The ledger as charges: a row per day, node, state, holder. Hours without a price are no charge.
-- ResourceId is the billed resource, the node; x_Allocated* are its owner and the method.
WITH priced AS (
    SELECT
        date_trunc('day', bucket) AS day,
        cluster,
        node,
        nullif(namespace, '') AS namespace,
        nullif(workload_kind, '') AS workload_kind,
        nullif(workload, '') AS workload,
        CASE WHEN namespace = '' THEN '(platform)' ELSE coalesce(team, namespace) END AS team,
        pool,
        model,
        state,
        gpu_seconds,
        usd,
        usd_gpu,
        price_as_of
    FROM ledger
    WHERE
        bucket >= $since AND bucket < $until
        AND usd IS NOT null
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
),

daily AS (
    SELECT
        day,
        cluster,
        node,
        namespace,
        workload_kind,
        workload,
        team,
        pool,
        model,
        state,
        (sum(gpu_seconds) / 3600)::DECIMAL(18, 6) AS gpu_hours,
        sum(usd)::DECIMAL(28, 8) AS usd,
        sum(usd_gpu)::DECIMAL(28, 8) AS usd_gpu,
        max(price_as_of) AS price_as_of
    FROM priced
    GROUP BY ALL
),

shares AS (
    SELECT
        *,
        usd::DOUBLE / nullif(sum(usd) OVER (PARTITION BY day, cluster, node)::DOUBLE, 0) AS part
    FROM daily
),

places AS (
    SELECT
        cluster,
        node,
        any_value(region) AS region,
        any_value(zone) AS zone,
        any_value(instance_type) AS instance_type,
        any_value(capacity_type) AS capacity_type,
        any_value(provider) AS provider
    FROM node
    GROUP BY ALL
),

described AS (
    SELECT
        s.*,
        nullif(p.region, '') AS region,
        nullif(p.zone, '') AS zone,
        coalesce(nullif(p.instance_type, ''), s.model, 'GPU node') AS sku,
        coalesce(nullif(p.capacity_type, ''), 'unknown') AS capacity_type,
        CASE p.provider
            WHEN 'aws' THEN 'Amazon Web Services'
            WHEN 'gcp' THEN 'Google Cloud'
            WHEN 'azure' THEN 'Microsoft Azure'
            ELSE 'Self-hosted'
        END AS provider,
        s.namespace || '/' || s.workload_kind || '/' || s.workload AS holder
    FROM shares AS s
    LEFT JOIN places AS p ON s.cluster = p.cluster AND s.node = p.node
)

SELECT
    usd AS BilledCost,
    cluster AS BillingAccountId,
    cluster AS BillingAccountName,
    'USD' AS BillingCurrency,
    strftime(date_trunc('month', day) + INTERVAL 1 MONTH, $form) AS BillingPeriodEnd,
    strftime(date_trunc('month', day), $form) AS BillingPeriodStart,
    'Usage' AS ChargeCategory,
    -- The charges of an ended month that was accounted anew replace those of before.
    CASE
        WHEN
            (cluster, date_trunc('month', day)) IN (
                SELECT (r.cluster, r.month)
                FROM restated AS r
                WHERE r.is_ended
            )
            THEN 'Correction'
    END AS ChargeClass,
    'GPU-hours of '
    || coalesce(model, 'an unknown model')
    || CASE
        WHEN holder IS null THEN ', not allocated: ' || state
        ELSE ', held by ' || holder || ': ' || state
    END AS ChargeDescription,
    'Usage-Based' AS ChargeFrequency,
    strftime(least(day + INTERVAL 1 DAY, $until::TIMESTAMP), $form) AS ChargePeriodEnd,
    strftime(greatest(day, $since::TIMESTAMP), $form) AS ChargePeriodStart,
    gpu_hours AS ConsumedQuantity,
    'GPU-Hours' AS ConsumedUnit,
    usd AS ContractedCost,
    CASE WHEN gpu_hours > 0 THEN (usd::DOUBLE / gpu_hours::DOUBLE)::DECIMAL(28, 10) END
        AS ContractedUnitPrice,
    usd AS EffectiveCost,
    provider AS InvoiceIssuerName,
    usd AS ListCost,
    CASE WHEN gpu_hours > 0 THEN (usd::DOUBLE / gpu_hours::DOUBLE)::DECIMAL(28, 10) END
        AS ListUnitPrice,
    CASE capacity_type
        WHEN 'on-demand' THEN 'Standard'
        WHEN 'spot' THEN 'Dynamic'
        WHEN 'reserved' THEN 'Committed'
        ELSE 'Other'
    END AS PricingCategory,
    gpu_hours AS PricingQuantity,
    'GPU-Hours' AS PricingUnit,
    provider AS ProviderName,
    provider AS PublisherName,
    region AS RegionId,
    region AS RegionName,
    zone AS AvailabilityZone,
    cluster || '/' || node AS ResourceId,
    node AS ResourceName,
    CASE WHEN node IS NOT null THEN 'GPU node' END AS ResourceType,
    'Compute' AS ServiceCategory,
    'GPU nodes of Kubernetes' AS ServiceName,
    'Virtual Machines' AS ServiceSubcategory,
    provider || '/' || sku AS SkuId,
    provider || '/' || sku || '/' || coalesce(region, 'any') || '/' || capacity_type AS SkuPriceId,
    CASE WHEN holder IS NOT null THEN team END AS SubAccountId,
    CASE WHEN holder IS NOT null THEN team END AS SubAccountName,
    CASE WHEN holder IS NOT null THEN 'Team' END AS SubAccountType,
    json_object(
        'namespace', namespace,
        'pool', pool,
        'state', state,
        'team', CASE WHEN holder IS NOT null THEN team END
    )::VARCHAR AS Tags,
    null::VARCHAR AS CommitmentDiscountCategory,
    null::VARCHAR AS CommitmentDiscountId,
    null::VARCHAR AS CommitmentDiscountName,
    null::VARCHAR AS CommitmentDiscountStatus,
    null::VARCHAR AS CommitmentDiscountType,
    'fallow-ledger-seconds' AS x_AllocatedMethodId,
    json_object(
        'AllocatedRatio', part, 'UsageUnit', 'GPU-Hours', 'UsageQuantity', gpu_hours::DOUBLE
    )::VARCHAR AS x_AllocatedMethodDetails,
    cluster || '/' || holder AS x_AllocatedResourceId,
    workload AS x_AllocatedResourceName,
    CASE
        WHEN holder IS NOT null
            THEN json_object('kind', workload_kind, 'namespace', namespace, 'team', team)::VARCHAR
    END AS x_AllocatedTags,
    part AS x_AllocatedRatio,
    CASE
        WHEN holder IS null THEN 'overhead'
        WHEN state IN ('idle', 'lost') THEN 'idle'
        ELSE 'usage'
    END AS x_CostKind,
    usd_gpu AS x_GpuCost,
    model AS x_GpuModel,
    state AS x_GpuState,
    usd - usd_gpu AS x_NodeCost,
    pool AS x_NodePool,
    strftime(price_as_of, $form) AS x_PriceAsOf,
    namespace AS x_Namespace,
    workload_kind AS x_WorkloadKind
FROM described
WHERE $team::VARCHAR IS null OR team = $team
ORDER BY
    day ASC, cluster ASC, node ASC, team ASC, holder ASC NULLS FIRST, state ASC, pool ASC, model ASC
