"""OpenTelemetry spans, through the API only. Without a tracer provider there are no spans and no cost.

Names and attributes follow the semantic conventions for databases and generative AI. Spans contain no text and no id.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from opentelemetry import trace

from redismem.events import Event

_NAME = "redismem"


def is_wanted() -> bool:
    """True if the process has set up a tracer provider."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def record_event(event: Event) -> None:
    """Record the span of a call that has just ended."""
    end_ns = time.time_ns()
    span = trace.get_tracer(_NAME).start_span(
        f"{event.op} redis",
        kind=trace.SpanKind.CLIENT,
        start_time=end_ns - int(event.duration_ms * 1_000_000),
        attributes={
            "db.system.name": "redis",
            "db.operation.name": event.op,
            "db.namespace": event.namespace,
            "redismem.outcome": event.outcome,
            "redismem.sent_count": event.sent_count,
        },
    )
    if event.outcome[:1].isupper():
        span.set_attribute("error.type", event.outcome)
        span.set_status(trace.StatusCode.ERROR)
    span.end(end_ns)


@contextlib.contextmanager
def chat_span(provider: str, model: str) -> Iterator[None]:
    """Wrap a request to a model in a span. An exception is recorded by its type, without its text."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
    }
    with trace.get_tracer(_NAME).start_as_current_span(
        f"chat {model}",
        kind=trace.SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
