-- From when on incoming rates (`incoming`) say what none of the stored ones does.
SELECT min(i.valid_from) AS first
FROM incoming AS i
ANTI JOIN rate AS r
    ON
        i.source = r.source AND i.provider = r.provider AND i.region = r.region
        AND i.zone = r.zone AND i.instance_type = r.instance_type
        AND i.gpu_model = r.gpu_model AND i.cluster = r.cluster AND i.term = r.term
        AND i.valid_from = r.valid_from AND i.node_usd_h = r.node_usd_h
