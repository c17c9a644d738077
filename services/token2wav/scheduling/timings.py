"""The time spans of a step."""

from cosyserve.telemetry import Timing
from services.token2wav.decoders.interface import Decoded


def decode_timings(hop: int, decoded: Decoded) -> list[Timing]:
    """The time spans of flow and vocoder in one step of hop number `hop`."""
    flow = Timing("token2wav.flow", *decoded.flow_ns, {"hop": hop, "tokens": decoded.tokens, "frames": decoded.frames})
    if decoded.vocoder_ns is None:
        return [flow]
    attributes: dict[str, int | float | str] = {
        "hop": hop,
        "frames": decoded.frames,
        "samples": int(decoded.samples.size),
    }
    return [flow, Timing("token2wav.vocoder", *decoded.vocoder_ns, attributes)]
