-- The ledger's rows of a workload, a node or a device; of several names, what they have in common.
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
