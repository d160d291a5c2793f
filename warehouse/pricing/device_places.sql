-- Devices without the ledger's untracked ones, with their nodes by time.
SELECT
    device_id,
    cluster,
    node,
    model,
    CASE
        WHEN lag(from_at) OVER of_device IS null THEN '-infinity'::TIMESTAMP
        ELSE from_at
    END AS holds_from,
    coalesce(lead(from_at) OVER of_device, 'infinity') AS holds_to
FROM spans
WINDOW of_device AS (PARTITION BY device_id ORDER BY from_at)
