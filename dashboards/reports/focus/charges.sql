-- noqa: disable=CP02
-- The ledger as charges: a row per day, node, state, holder. Hours without a price are no charge.
-- ResourceId is the billed resource, the node; x_Allocated* are its owner and the method.
WITH priced AS (
    SELECT
        date_trunc('day', l.bucket) AS day,
        l.cluster,
        l.node,
        nullif(l.namespace, '') AS namespace,
        nullif(l.workload_kind, '') AS workload_kind,
        nullif(l.workload, '') AS workload,
        CASE WHEN l.namespace = '' THEN '(platform)' ELSE coalesce(l.team, l.namespace) END
            AS team,
        l.pool,
        l.model,
        l.state,
        l.gpu_seconds,
        l.usd,
        l.usd_gpu,
        l.estimated,
        l.price_as_of,
        coalesce(s.committed, 0) AS committed,
        coalesce(s.committed_usd, 0) AS committed_usd,
        coalesce(s.committed_usd_gpu, 0) AS committed_usd_gpu,
        n.region,
        n.zone,
        coalesce(n.instance_type, l.model, 'GPU node') AS sku,
        coalesce(n.capacity_type, 'unknown') AS capacity_type,
        CASE n.provider
            WHEN 'aws' THEN 'Amazon Web Services'
            WHEN 'gcp' THEN 'Google Cloud'
            WHEN 'azure' THEN 'Microsoft Azure'
            ELSE 'Self-hosted'
        END AS provider
    FROM ledger AS l
    LEFT JOIN node_eras AS n
        ON
            l.cluster = n.cluster AND l.node = n.node
            AND l.bucket >= n.holds_from AND l.bucket < n.holds_to
    LEFT JOIN node_shares AS s
        ON
            l.cluster = s.cluster AND l.node = s.node AND l.model IS NOT DISTINCT FROM s.model
            AND l.bucket >= s.from_at AND l.bucket < s.to_at
    WHERE
        l.bucket >= $since AND l.bucket < $until
        AND l.usd IS NOT null
        AND ($cluster::VARCHAR IS null OR l.cluster = $cluster)
),

-- What commitments paid is a charge of its own.
bought AS (
    SELECT
        * REPLACE (
            'reserved' AS capacity_type,
            false AS estimated,
            gpu_seconds * committed AS gpu_seconds,
            (usd * committed_usd)::DECIMAL(28, 8) AS usd,
            (usd_gpu * committed_usd_gpu)::DECIMAL(28, 8) AS usd_gpu
        )
    FROM priced
    WHERE committed > 0
    UNION ALL BY NAME
    SELECT
        * REPLACE (
            gpu_seconds * (1 - committed) AS gpu_seconds,
            usd - (usd * committed_usd)::DECIMAL(28, 8) AS usd,
            usd_gpu - (usd_gpu * committed_usd_gpu)::DECIMAL(28, 8) AS usd_gpu
        )
    FROM priced
    WHERE committed < 1
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
        region,
        zone,
        sku,
        capacity_type,
        provider,
        coalesce(estimated, false) AS estimated,
        (sum(gpu_seconds) / 3600)::DECIMAL(18, 6) AS gpu_hours,
        sum(usd)::DECIMAL(28, 8) AS usd,
        sum(usd_gpu)::DECIMAL(28, 8) AS usd_gpu,
        max(price_as_of) AS price_as_of
    FROM bought
    GROUP BY ALL
),

shares AS (
    SELECT
        *,
        usd::DOUBLE / nullif(sum(usd) OVER (PARTITION BY day, cluster, node)::DOUBLE, 0) AS part
    FROM daily
),

described AS (
    SELECT
        *,
        namespace || '/' || workload_kind || '/' || workload AS holder
    FROM shares
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
    CASE WHEN estimated THEN 'Estimate' ELSE 'Rate' END AS x_PriceBasis,
    namespace AS x_Namespace,
    workload_kind AS x_WorkloadKind
FROM described
WHERE $team::VARCHAR IS null OR team = $team
ORDER BY
    day ASC, cluster ASC, node ASC, team ASC, holder ASC NULLS FIRST, state ASC, pool ASC,
    model ASC, SkuPriceId ASC, x_PriceBasis ASC
