-- Which kinds a device is in the window, one after another. Devices with the same ones share a
-- timeline.
SELECT
    device_id,
    eras,
    dense_rank() OVER (ORDER BY eras) AS timeline
FROM (
    SELECT
        device_id,
        list(struct_pack(kind := kind, from_at := from_at, to_at := to_at) ORDER BY from_at)
            AS eras
    FROM subjects
    GROUP BY device_id
) AS device_eras
