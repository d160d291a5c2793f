"""Trace jobs as OpenTelemetry spans, with the extra `otel` and the standard variables.

`OTEL_EXPORTER_OTLP_ENDPOINT` (or `..._TRACES_ENDPOINT`) switches it on; headers, timeouts and
sampling are its own variables too. Without it nothing is loaded.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from fallow import __version__

log = logging.getLogger("fallow.tracing")

SWITCHES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
SpanFactory = Callable[[str], AbstractContextManager[Any]]


def trace_nothing(_name: str) -> AbstractContextManager[Any]:
    """Trace nothing."""
    return nullcontext()


@contextmanager
def open_tracing() -> Iterator[SpanFactory]:
    """Yield a function that wraps work in a named span; the rest is sent at the end."""
    if not any(os.environ.get(name) for name in SWITCHES):
        yield trace_nothing
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        log.warning("no traces", extra={"why": "install fallow[otel]"})
        yield trace_nothing
        return
    named = {"service.name": "fallow", "service.version": __version__}
    provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("fallow")
    try:
        # A stack has messages of other packages, which may have passwords; the log redacts them.
        yield partial(tracer.start_as_current_span, record_exception=False)
    finally:
        provider.shutdown()
