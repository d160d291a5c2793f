"""One GPU whose exporter's names were written in lower case by a store."""

from tests.field.site import build_node, list_lines
from tests.field.situation import Situation

SITUATION = Situation(
    kind="I",
    dumps=[[build_node("a", 1, provider="")]],
    texts=["\n".join(line.lower() for line in [*list_lines("GPU-0", "a"), ""]).encode()],
    texts_refused="holds no GPU metric that Fallow knows",
)
