-- The ledger's rows of a workload, a node or a device; of several named, what all of them share.
SELECT
    cluster,
    bucket,
    team,
    workload,
    model,
    node,
    device,
    state,
    gpu_hours,
    usd
FROM paid
WHERE
    ($workload::VARCHAR IS null OR workload = $workload)
    AND ($node::VARCHAR IS null OR node = $node)
    AND ($device::VARCHAR IS null OR device = $device)
