-- The labels of the samples, the number by which `classified.sql` names them, and their longest
-- interval.
SELECT
    label,
    device,
    namespace,
    pod,
    node,
    parent,
    vendor,
    model,
    profile,
    max(interval_s) AS interval_s
FROM labelled_sample
GROUP BY ALL
