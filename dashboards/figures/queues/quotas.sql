-- The newest state of each quota of GPUs in the window's last day; MIG instances as parts of GPUs.
WITH latest AS (
    SELECT
        cluster,
        kind,
        namespace,
        name,
        resource,
        arg_max(
            struct_pack(
                parent := parent,
                nominal := nominal,
                most := "limit",
                used := used,
                borrowed := borrowed,
                pending := pending,
                waiting := waiting
            ),
            ts
        ) AS newest,
        max(ts) AS ts,
        coalesce(try_cast(regexp_extract(resource, '/mig-([0-9]+)g', 1) AS INTEGER) / 7, 1) AS unit
    FROM quota
    WHERE
        ts >= greatest($since::TIMESTAMP, $until::TIMESTAMP - INTERVAL 1 DAY)
        AND ts < $until
        AND regexp_matches(resource, '(^|/|\.)(gpu|mig-|vgpu|npu|ascend)', 'i')
        AND ($cluster::VARCHAR IS null OR cluster = $cluster)
        AND ($namespace::VARCHAR IS null OR namespace = $namespace)
    GROUP BY ALL
)

SELECT
    cluster,
    kind,
    CASE WHEN namespace = '' THEN name ELSE namespace || '/' || name END AS name,
    newest['parent'] AS parent,
    resource,
    newest['nominal'] * unit AS nominal,
    newest['most'] * unit AS "limit",
    newest['used'] * unit AS used,
    newest['borrowed'] * unit AS borrowed,
    newest['pending'] AS pending,
    newest['waiting'] * unit AS waiting,
    ts
FROM latest
ORDER BY coalesce(waiting, 0) DESC, used DESC NULLS LAST, cluster ASC, kind ASC, name ASC
LIMIT $most
