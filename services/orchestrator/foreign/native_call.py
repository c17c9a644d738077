"""A call of another contract, answered by a method of our own service: the method gets a translated
request and a context whose `write` translates the responses back. So it is admitted, spoken,
resumed, cancelled and measured as any call of ours.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Protocol, cast

import grpc

from cosyserve.v1 import synthesis_pb2 as pb

Context = grpc.aio.ServicerContext[Any, Any]
_MOST_NOTES = 2_000
"""Characters of the warnings: metadata travel in one block of headers."""


class NativeService(Protocol):
    """Methods of `SynthesisService`, which write their responses to the context."""

    async def Synthesize(self, request: pb.SynthesizeRequest, context: Context, /) -> None: ...  # noqa: N802

    async def StreamingSynthesize(  # noqa: N802
        self, requests: AsyncIterator[pb.StreamingSynthesizeRequest], context: Context, /
    ) -> None: ...

    async def ListVoices(  # noqa: N802
        self, request: pb.ListVoicesRequest, context: Context, /
    ) -> pb.ListVoicesResponse: ...


class _Translating:
    """A context as it is, but for `write`."""

    def __init__(self, context: Context, write: Callable[[pb.SynthesizeResponse], Awaitable[None]]) -> None:
        self._context = context
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def translating(
    context: Context, write: Callable[[pb.SynthesizeResponse], Awaitable[None]], notes: Iterable[str] = ()
) -> Context:
    """The context for a method of our own service.

    write: sends the translation of a response. notes: warnings of the adapter, read when the last
    response is written. The trailing metadata of the call get `x-seed`, `x-voice`,
    `x-sample-rate` and `x-synthetic-audio`, and `x-warnings` if there are any.
    """
    known: dict[str, str] = {"x-synthetic-audio": "true"}

    async def translated(response: pb.SynthesizeResponse) -> None:
        if response.HasField("header"):
            header = response.header
            known["x-seed"] = str(header.seed)
            known["x-sample-rate"] = str(header.audio_format.sample_rate_hertz)
            known["x-voice"] = _printable(header.voice)
        if response.HasField("summary"):
            if warnings := [*notes, *(warning.message for warning in response.summary.warnings)]:
                known["x-warnings"] = _printable("; ".join(warnings))[:_MOST_NOTES]
            context.set_trailing_metadata(tuple(known.items()))
        await write(response)

    return cast("Context", _Translating(context, translated))


def _printable(text: str) -> str:
    """As metadata can carry it: printable ASCII."""
    return "".join(character if " " <= character <= "~" else "?" for character in text)
