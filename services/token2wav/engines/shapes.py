"""All shapes with which the graphs are run; they follow from the schedule of cuts. The profiles for
which engines are built follow from them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from cosyserve.errors import ModelError
from cosyserve.generations.separate_decoder import token2wav_networks
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN, SAMPLES_PER_MEL_FRAME
from services.token2wav.engines.runtime import Shape, Shapes
from services.token2wav.inputs.request import MAX_PROMPT_TOKENS, MAX_TOKENS

USUAL_TOKENS = 1000
"""Prompt and sentence of 40 seconds: streams up to this length may share a batch."""
_FINE_BLOCKS = 20
"""Up to 20 seconds lengths are padded to whole seconds, then to steps of a tenth or less."""
STRETCH_FRAMES = 50
"""Maximum number of frames in one call of the filter network."""
SOURCE_MARGIN = 8
"""Samples of excitation on each side of those of the frames: half a transform."""


@dataclass(frozen=True)
class FramesAround:
    """Mel frames around a range of samples that the filter network gets. before, after: context,
    whose samples are computed and discarded. ahead: frames without samples.
    """

    before: int
    after: int
    ahead: int


FRAMES_AROUND = {"hift": FramesAround(15, 15, 0), "causal-hift": FramesAround(30, 0, 4)}
"""By vocoder network. Of HiFT 14 frames of convolution and 14.3 of excitation on each side; of
causal HiFT 29.6 of excitation before.
"""


def frames_around(directory: ModelDirectory) -> FramesAround:
    """Of the directory's vocoder. Raises ModelError for a network that engines do not run."""
    name = token2wav_networks(directory).vocoder_network
    if name not in FRAMES_AROUND:
        raise ModelError(
            f"{directory.path}: engines run the vocoder networks {', '.join(FRAMES_AROUND)}; this one is {name}"
        )
    return FRAMES_AROUND[name]


def padded(tokens: int) -> int:
    """The length in tokens with which a prefix of `tokens` is computed: whole blocks of 25, longer
    ones in steps of 2, 4, 8, ... blocks.
    """
    blocks = -(-tokens // CHUNK_TOKENS)
    step = 1
    while blocks > _FINE_BLOCKS * step:
        step *= 2
    return -(-blocks // step) * step * CHUNK_TOKENS


LONGEST_TOKENS = padded(MAX_PROMPT_TOKENS + MAX_TOKENS)


def encoder_shapes(streams: int, tokens: int, width: int | None) -> dict[str, Shape]:
    """Inputs of the encoder; `tokens` without look-ahead. width: of its position tables, None for
    an encoder without attention.
    """
    frames, seen = MEL_FRAMES_PER_TOKEN * tokens, tokens + LOOKAHEAD_TOKENS
    given: dict[str, Shape] = {"tokens": (streams, seen), "known": (streams, seen)}
    if width is None:
        return given
    return given | {
        "mask": (streams, 1, tokens),
        "attention": (tokens, tokens),
        "attention_frames": (frames, frames),
        "positions": (2 * tokens, width),
        "positions_frames": (2 * frames, width),
    }


def estimator_shapes(rows: int, frames: int, *, masked: bool = True) -> dict[str, Shape]:
    """Inputs of the estimator; rows: two for each stream. masked: whether it has the input
    `attention`.
    """
    wide = (rows, MEL_BINS, frames)
    shapes: dict[str, Shape] = {
        "x": wide,
        "mask": (rows, 1, frames),
        "mu": wide,
        "t": (rows,),
        "spks": (rows, MEL_BINS),
        "cond": wide,
    }
    return shapes | ({"attention": (frames, frames)} if masked else {})


def pitch_shapes(streams: int, frames: int) -> dict[str, Shape]:
    return {"mel": (streams, MEL_BINS, frames)}


def filter_shapes(streams: int, frames: int, ahead: int = 0) -> dict[str, Shape]:
    """Inputs of the filter network; ahead: frames of mel behind those whose samples it computes."""
    return {
        "mel": (streams, MEL_BINS, frames + ahead),
        "source": (streams, SAMPLES_PER_MEL_FRAME * frames + 2 * SOURCE_MARGIN),
    }


@dataclass(frozen=True)
class Profile:
    """Shapes of an engine's inputs: it supports every length between least and most, and is tuned
    for usual.
    """

    least: Shapes
    usual: Shapes
    most: Shapes

    def covers(self, shapes: Shapes) -> bool:
        """Whether each length is between least and most."""
        return shapes.keys() == self.most.keys() and all(
            all(
                low <= length <= high
                for low, length, high in zip(self.least[name], shape, self.most[name], strict=True)
            )
            for name, shape in shapes.items()
        )

    @property
    def text(self) -> str:
        """For the key of an engine."""
        return " ".join(
            f"{name}:{_text(self.least[name])}/{_text(self.usual[name])}/{_text(self.most[name])}"
            for name in sorted(self.most)
        )


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape))


def profiles(
    component: str,
    streams: int,
    width: int | None = None,
    *,
    masked: bool = True,
    around: FramesAround = FRAMES_AROUND["hift"],
) -> list[Profile]:
    """The profiles for which an engine is built; the first one that covers a shape is used.
    streams: maximum number in a batch. width: see `encoder_shapes`. around: of the vocoder.

    encoder, estimator: batches of up to 40 seconds, and one stream of up to the longest request, so
    that other lengths do not pay for its memory. masked: False is the published estimator, whose
    batch is one stream.
    """
    few, batch = max(1, streams // 2), streams
    if component == "estimator" and not masked:
        few = batch = 1

    def at(count: int, tokens: int) -> Shapes:
        if component == "encoder":
            return encoder_shapes(count, tokens, width)
        return estimator_shapes(2 * count, MEL_FRAMES_PER_TOKEN * tokens, masked=masked)

    if component in ("encoder", "estimator"):
        return [
            Profile(at(1, 1), at(few, 10 * CHUNK_TOKENS), at(batch, USUAL_TOKENS)),
            Profile(at(1, 1), at(1, 2 * USUAL_TOKENS), at(1, LONGEST_TOKENS)),
        ]
    if component in ("pitch", "filter"):
        shapes = pitch_shapes if component == "pitch" else partial(filter_shapes, ahead=around.ahead)
        tuned = 20 if component == "pitch" else 40
        longest = around.before + STRETCH_FRAMES + around.after
        return [Profile(shapes(1, 1), shapes(few, tuned), shapes(batch, longest))]
    raise ValueError(f"component {component!r} is not known")


def covering(built: list[Profile], shapes: Mapping[str, Shape]) -> int | None:
    """Index of the first profile that covers `shapes`."""
    return next((at for at, profile in enumerate(built) if profile.covers(shapes)), None)
