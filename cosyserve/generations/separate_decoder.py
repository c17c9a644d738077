"""Flows and vocoders that are published without a speech-token model, for the tokens of a
generation; and which networks a directory of token2wav holds, a decoder's or a generation's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation, WeightMark
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import DECODER_YAML, ModelDirectory, Node, Shaped


@dataclass(frozen=True, kw_only=True)
class SeparateDecoder:
    """A directory of `flow.yaml`, `flow.pt` and `hift.pt`. Mel, speaker vector and speech tokens
    are those of `generation`, whose directory has everything else.
    """

    name: str
    title: str
    """The name as people write it."""
    generation: Generation
    """Whose speech tokens it decodes."""
    classes: tuple[tuple[tuple[str, ...], str], ...]
    """Keys from the top of the yaml, and the class that it names there, without its package."""
    flow_network: str
    vocoder_network: str
    state_bytes_per_second: int
    """See `Generation`; only of what is kept, where the past is bounded."""
    kept_seconds: float | None
    """See `Generation`. Beyond it, the encoder's part still grows, by two per cent of a second."""
    weight_marks: tuple[WeightMark, ...]

    @property
    def hold_back_frames(self) -> int:
        """See `Generation`; a decoder with its vocoder has its hold-back."""
        return self.generation.hold_back_frames

    @property
    def hold_back_tokens(self) -> int:
        return self.generation.hold_back_tokens


STEP_AUDIO2 = SeparateDecoder(
    name="step-audio2",
    title="Step-Audio2",
    generation=COSYVOICE2,
    classes=(
        (("flow",), "CausalMaskedDiffWithXvec"),
        (("flow", "encoder"), "UpsampleConformerEncoderV2"),
        (("flow", "decoder", "estimator"), "DiT"),
    ),
    flow_network="conformer-dit",
    vocoder_network="hift",
    state_bytes_per_second=67_000_000,
    kept_seconds=3.0,
    weight_marks=(WeightMark("flow.pt", "decoder.estimator.in_proj."), WeightMark("hift.pt", "conv_pre.", taps=7)),
)
DECODERS: tuple[SeparateDecoder, ...] = (STEP_AUDIO2,)
Token2WavNetworks = Generation | SeparateDecoder
"""What token2wav has to know of a model; both have it."""


def token2wav_networks(directory: ModelDirectory) -> Token2WavNetworks:
    """Those of the decoder that the directory holds, or of its generation. Raises ModelError as
    `generation_of`, and for a `flow.yaml` of no known decoder.
    """
    return decoder_of(directory) or generation_of(directory)


def decoder_of(directory: ModelDirectory) -> SeparateDecoder | None:
    """The decoder of a directory that is described by `flow.yaml`; None for one of a generation.
    Raises ModelError naming the class that no known decoder has.
    """
    if not (directory.path / DECODER_YAML).exists() or directory.yaml_name != DECODER_YAML:
        return None
    for decoder in DECODERS:
        wrong = [(keys, named) for keys, expected in decoder.classes if (named := _class(directory, keys)) != expected]
        if not wrong:
            return decoder
    keys, named = wrong[0]
    raise ModelError(
        f"{directory.path / DECODER_YAML}: {'.'.join(keys)} is {named or 'no class'}; decoders that can be served are "
        f"{', '.join(each.title for each in DECODERS)}"
    )


def _class(directory: ModelDirectory, keys: tuple[str, ...]) -> str | None:
    above = directory.section(*keys[:-1]) if keys[:-1] else directory.config()
    section = above.get(keys[-1])
    return section.path.rpartition(".")[2] if isinstance(section, Node) else None


def require_own_weights(directory: ModelDirectory, path: Path, tensors: Mapping[str, Shaped]) -> None:
    """Raises ModelError naming both when `path`, which holds `tensors`, lacks the mark of the
    directory's generation or decoder and has that of another one. A file without any mark passes:
    what it lacks is for its loader to say.
    """
    own = token2wav_networks(directory)
    known: tuple[Token2WavNetworks, ...] = (*GENERATIONS, *DECODERS)
    if any(_has(tensors, mark) for mark in own.weight_marks if mark.file == path.name):
        return
    for other in known:
        if any(_has(tensors, mark) for mark in other.weight_marks if mark.file == path.name):
            raise ModelError(
                f"{path}: its tensors are those of {other.title}; the directory's yaml is of {own.title}, "
                "and a model directory holds one model"
            )


def _has(tensors: Mapping[str, Shaped], mark: WeightMark) -> bool:
    return any(
        name.startswith(mark.tensor)
        and (mark.taps is None or (len(tensor.shape) == 3 and tensor.shape[-1] == mark.taps))
        for name, tensor in tensors.items()
    )
