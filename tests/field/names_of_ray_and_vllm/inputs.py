"""Both names of one gauge."""

from tests.field.resting import build_situation, load, rest

RAY = {
    "ray_vllm_request_success_total": 3,
    "ray_vllm_num_requests_running": 0,
    "ray_vllm_num_requests_waiting": 0,
}
VLLM = {name.replace("ray_vllm_", "vllm:"): value for name, value in RAY.items()}
WAITS = {"ray_vllm_num_requests_waiting": 5, "vllm:num_requests_waiting": 5}
PARTS = [
    rest("both", serving=load("both", {**RAY, **VLLM, **WAITS})),
    rest("rest", serving=load("rest", RAY, {"WorkerId": "w1", "ReplicaId": "r1"})),
]

SITUATION = build_situation("J", PARTS, {"both": "requests at its servers: 5 wait", "rest": ""})
