"""HAMi's legacy series: the device is 72 % busy, its container says 180."""

from tests.field.site import STEP, ago
from tests.field.situation import Situation

DEVICE = 'deviceidx="0",deviceuuid="GPU-0",nodeid="a",zone="vGPU"'
CONTAINER = (
    'ctrname="mistral-7b",deviceuuid="GPU-0",podname="mistral-7b-0",podnamespace="ml",'
    'vdeviceid="0",nodeid="a",zone="vGPU"'
)
TIMES = [int((ago(6) + STEP * k).timestamp() * 1000) for k in range(72)]

SITUATION = Situation(
    kind="G",
    lines=[
        *(f"HostCoreUtilization{{{DEVICE}}} {72 + at % 3} {at}" for at in TIMES),
        *(f"Device_utilization_desc_of_container{{{CONTAINER}}} 180 {at}" for at in TIMES),
    ],
    hours={"state": {"productive": 6.0}},
    answers={"select cluster, rejected from scrape": [{"rejected": 72}]},
)
