-- The device samples with their labels as one number: eight texts of each sample would take longer
-- to read than all its measurements. `labels.sql` has the texts of each number. Where two labels
-- share a number, which a hash cannot exclude, `$is_strong` gives others.
SELECT
    *, -- noqa: AM04
    CASE
        WHEN $is_strong
            THEN hash(
                sha256(device),
                sha256(namespace),
                sha256(pod),
                sha256(node),
                sha256(parent),
                sha256(vendor),
                sha256(model),
                sha256(profile)
            )
        ELSE hash(device, namespace, pod, node, parent, vendor, model, profile)
    END AS label
FROM device_sample
