-- The labels of the samples, and the number by which `classified.sql` names them.
SELECT DISTINCT
    label,
    device,
    namespace,
    pod,
    node,
    parent,
    vendor,
    model,
    profile
FROM labelled_sample
