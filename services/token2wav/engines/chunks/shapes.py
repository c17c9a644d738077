"""The shapes of the graphs that compute one block of Step-Audio2's flow from kept state.

Lengths are padded, as those of whole prefixes: a block to whole seconds, what is kept likewise. So
every block behind a prompt has one shape, whose past grows with the prompt's length alone, in steps
of a second, up to the bound of the estimator's past; the encoder's grows with the sentence.
"""

from dataclasses import dataclass
from functools import partial

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.engines.runtime import Shape, Shapes
from services.token2wav.engines.shapes import LONGEST_TOKENS, USUAL_TOKENS, Profile, padded
from services.token2wav.flow.solver import ROWS
from services.token2wav.flow.step_dit.weights import BLOCK_MODULATIONS, CONVOLUTION_TAPS, StepDitConfig
from services.token2wav.inputs.request import MAX_PROMPT_TOKENS

SMOOTH_REACH, UP_REACH = 2, 2 * MEL_FRAMES_PER_TOKEN
"""Columns that the encoder's two convolutions see of what comes before: in the look-ahead layer,
and behind the upsampling.
"""
BLOCK_REACH = CONVOLUTION_TAPS - 1
"""Frames that each convolution of the estimator sees before a frame."""
_LONGEST_PROMPT = padded(MAX_PROMPT_TOKENS)


def modulations(config: StepDitConfig) -> int:
    """Numbers that a time contributes to the estimator."""
    return (BLOCK_MODULATIONS * config.depth + 2) * config.width


@dataclass(frozen=True)
class Block:
    """A call of a graph: so many streams, tokens of a block with its padding, and tokens kept in
    front of it with theirs.
    """

    streams: int
    tokens: int
    past: int

    @classmethod
    def of(cls, streams: int, tokens: int, past: int) -> "Block":
        """Padded, for `tokens` of a block and the longest `past` of a batch. A past is never
        empty, since not every runtime takes a tensor without numbers.
        """
        return cls(streams, padded(tokens), padded(max(past, 1)))

    @property
    def frames(self) -> int:
        return MEL_FRAMES_PER_TOKEN * self.tokens

    @property
    def past_frames(self) -> int:
        return MEL_FRAMES_PER_TOKEN * self.past


def encoder_shapes(block: Block, config: StepDitConfig) -> dict[str, Shape]:
    """Inputs of the encoder."""
    streams, tokens, past, width = block.streams, block.tokens, block.past, config.encoder_width
    heads = config.encoder_heads
    kept = (streams, heads, past, width // heads)
    kept_frames = (streams, heads, block.past_frames, width // heads)
    return {
        "tokens": (streams, tokens + LOOKAHEAD_TOKENS),
        "known": (streams, tokens + LOOKAHEAD_TOKENS),
        "past": (2 * config.encoder_layers, *kept),
        "past_frames": (2 * config.encoder_upsampled_layers, *kept_frames),
        "seen": (streams, past + tokens),
        "seen_frames": (streams, block.past_frames + block.frames),
        "positions": (past + 2 * tokens, width),
        "positions_frames": (block.past_frames + 2 * block.frames, width),
        "columns": (streams, SMOOTH_REACH, width),
        "columns_frames": (streams, UP_REACH, width),
        "tail": (streams, SMOOTH_REACH, tokens + SMOOTH_REACH),
        "tail_frames": (streams, UP_REACH, block.frames + UP_REACH),
    }


def encoder_outputs(block: Block, config: StepDitConfig) -> dict[str, Shape]:
    """What the encoder makes."""
    given = encoder_shapes(block, config)
    made: dict[str, Shape] = {"mu": (block.streams, block.frames, MEL_BINS)}
    return made | {
        "new_past": _with_length(given["past"], block.tokens),
        "new_past_frames": _with_length(given["past_frames"], block.frames),
        "new_columns": given["columns"],
        "new_columns_frames": given["columns_frames"],
    }


def estimator_shapes(block: Block, config: StepDitConfig) -> dict[str, Shape]:
    """Inputs of the estimator, two rows for each stream."""
    rows, frames, past = ROWS * block.streams, block.frames, block.past_frames
    return {
        "inputs": (rows, frames, 4 * MEL_BINS),
        "times": (1, 1, modulations(config)),
        "past": (2 * config.depth, rows, config.heads, past, config.head_width),
        "columns": (rows, BLOCK_REACH, 2 * config.depth * config.width),
        "seen": (rows, past + frames),
        "tail": (rows, BLOCK_REACH, frames + BLOCK_REACH),
    }


def estimator_outputs(block: Block, config: StepDitConfig) -> dict[str, Shape]:
    """What the estimator makes."""
    given = estimator_shapes(block, config)
    return {
        "velocity": (ROWS * block.streams, block.frames, MEL_BINS),
        "new_past": _with_length(given["past"], block.frames),
        "new_columns": given["columns"],
    }


def _with_length(kept: Shape, length: int) -> Shape:
    return (*kept[:3], length, kept[4])


def most_streams(tokens: int, past: int, streams: int) -> int:
    """How many streams may share a call, of `streams` at most; tokens and past unpadded."""
    return streams if tokens <= CHUNK_TOKENS and past <= USUAL_TOKENS else 1


def chunk_profiles(component: str, streams: int, config: StepDitConfig) -> list[Profile]:
    """The profiles of `encoder` and `estimator`: batches of blocks of 25 tokens with up to 40
    seconds kept; one stream, its prompt as one block or a later block with whatever is kept; one
    stream offline, which is one long block that keeps nothing.
    """
    shapes = partial(_shapes, component, config)
    few, one = max(1, streams // 2), CHUNK_TOKENS
    # No network but the encoder keeps more than the prompt and a bounded past.
    kept = LONGEST_TOKENS if component == "encoder" else padded(_LONGEST_PROMPT + 3 * CHUNK_TOKENS)
    return [
        Profile(shapes(1, one, one), shapes(few, one, 10 * one), shapes(streams, one, USUAL_TOKENS)),
        Profile(shapes(1, one, one), shapes(1, 10 * one, one), shapes(1, _LONGEST_PROMPT, kept)),
        Profile(shapes(1, one, one), shapes(1, USUAL_TOKENS, one), shapes(1, LONGEST_TOKENS, one)),
    ]


def _shapes(component: str, config: StepDitConfig, streams: int, tokens: int, past: int) -> Shapes:
    block = Block(streams, tokens, past)
    return encoder_shapes(block, config) if component == "encoder" else estimator_shapes(block, config)
