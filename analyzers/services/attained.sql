-- How many observations were within each objective, by workload, metric and source: minimum,
-- interpolated in the bucket of the objective, and maximum; and in how many hours.
WITH objectives AS (
    SELECT
        unnest($clusters) AS cluster,
        unnest($namespaces) AS namespace,
        unnest($kinds) AS workload_kind,
        unnest($workloads) AS workload,
        unnest($metrics) AS metric,
        unnest($within) AS within_s,
        unnest($targets) AS target
),

histograms AS (
    SELECT
        o.*,
        s.ts,
        s.source,
        s.bounds,
        s.counts,
        s.count AS observed,
        -- Scaled bounds have rounding errors: a bound within a billionth equals the objective.
        len([b FOR b IN s.bounds IF b <= o.within_s * (1 + 1e-9)]) AS below,
        CASE WHEN len(s.bounds) = 0 THEN s.total_s / nullif(s.count, 0) END AS mean_s
    FROM latency_sample AS s
    INNER JOIN owners AS w ON s.cluster = w.cluster AND s.namespace = w.namespace AND s.pod = w.pod
    INNER JOIN objectives AS o
        ON
            w.cluster = o.cluster AND w.namespace = o.namespace
            AND w.workload_kind = o.workload_kind AND w.workload = o.workload
            AND s.metric = o.metric
    WHERE s.ts >= $since AND s.ts < $until AND s.count > 0
),

placed AS (
    SELECT
        *,
        coalesce(list_sum(counts[1:below]), 0) AS sure,
        CASE WHEN below = 0 THEN 0 ELSE bounds[below] END AS under,
        bounds[below + 1] AS upper,
        counts[below + 1] AS straddling,
        below > 0 AND bounds[below] >= within_s * (1 - 1e-9) AS exact
    FROM histograms
),

counted AS (
    SELECT
        *,
        CASE
            -- Markov's inequality: of non-negative values, at most mean / x are above x.
            WHEN len(bounds) = 0 THEN observed * greatest(0, 1 - coalesce(mean_s, 1e9) / within_s)
            ELSE sure
        END AS least,
        CASE
            WHEN len(bounds) = 0 THEN observed * greatest(0, 1 - coalesce(mean_s, 1e9) / within_s)
            WHEN exact OR upper IS null THEN sure
            ELSE sure + straddling * (within_s - under) / (upper - under)
        END AS about,
        CASE
            WHEN len(bounds) = 0 THEN observed
            WHEN exact THEN sure
            ELSE sure + straddling
        END AS most
    FROM placed
),

hourly AS (
    SELECT
        cluster,
        namespace,
        workload_kind,
        workload,
        metric,
        source,
        within_s,
        target,
        date_trunc('hour', ts) AS hour,
        sum(observed) AS observed,
        sum(least) AS least,
        sum(about) AS about,
        sum(most) AS most,
        bool_or(len(bounds) = 0) AS mean_only
    FROM counted
    GROUP BY ALL
)

SELECT
    cluster,
    namespace,
    workload_kind,
    workload,
    metric,
    source,
    within_s,
    target,
    sum(observed) AS requests,
    sum(least) AS least,
    sum(about) AS about,
    sum(most) AS most,
    count(*) AS hours,
    max(hour) AS last_hour,
    count(*) FILTER (WHERE most < target * observed) AS hours_missed,
    min(about / observed) AS worst_hour,
    bool_or(mean_only) AS mean_only
FROM hourly
GROUP BY ALL
ORDER BY ALL
