"""The files of a model directory that this service reads. `llm.pt` is read without executing it and
checked tensor by tensor.

Source of names and shapes: compatibility specification of CosyVoice2, section 3.5, and of
CosyVoice3, section 3.1.
"""

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from cosyserve.errors import ModelError, SettingsError
from cosyserve.generations.reading import GENERATIONS
from cosyserve.model_directory import ModelDirectory, check_tensors
from services.llm.engine.model import SpeechTokenModel
from services.llm.generation.config import WEIGHTS, LlmConfig, identity_files, read_config
from services.llm.guards.alignment import FILE as ALIGNMENT
from services.llm.guards.alignment import AlignmentTable

SPEECH, HEAD_BIAS = "speech_embedding.weight", "llm_decoder.bias"
TIED_HEAD = "llm.model.lm_head.weight"
_ROWS_AT_ONCE = 4096
"""Rows of a tensor that are checked at a time: checking the text embedding as a whole would need
twice its size in memory.
"""


@dataclass(frozen=True)
class ServedModel:
    """A model directory, of which the weights have not been read. alignment: None where the
    directory has no table.
    """

    directory: ModelDirectory
    config: LlmConfig
    alignment: AlignmentTable | None

    @classmethod
    def read(cls, path: Path | None) -> "ServedModel":
        """Raises SettingsError without a path, ModelError for an unusable directory."""
        if path is None:
            raise SettingsError("model is not set")
        directory = ModelDirectory(path)
        config, table = read_config(directory), directory.path / ALIGNMENT
        alignment = AlignmentTable.read(table, config.text_vocabulary) if table.exists() else None
        directory.begin_hash(identity_files(directory))
        return cls(directory, config, alignment)

    @property
    def hash(self) -> str:
        """Of what this service loads; waits until it is computed, which begins with `read`."""
        return model_hash(self.directory)

    def load(self, device: torch.device, *, mapped: bool = True) -> SpeechTokenModel:
        """The model with its weights on `device`. mapped: whether they may stay in the file. Raises
        ModelError naming file and tensor.
        """
        return SpeechTokenModel.build(self.config, load_tensors(self.directory, self.config, mapped=mapped), device)


def expected_tensors(config: LlmConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of `llm.pt`; the tied text head, which is never used, is not
    among them.
    """
    hidden, mlp = config.hidden_size, config.intermediate_size
    query, speech = config.heads * config.head_size, config.speech
    shapes: dict[str, tuple[int, ...]] = {} if speech.start is not None else {"llm_embedding.weight": (2, hidden)}
    shapes |= {SPEECH: (speech.rows, hidden), "llm_decoder.weight": (speech.rows, hidden)}
    if speech.head_bias:
        shapes |= {HEAD_BIAS: (speech.rows,)}
    shapes |= {
        "llm.model.model.embed_tokens.weight": (config.text_vocabulary, hidden),
        "llm.model.model.norm.weight": (hidden,),
    }
    for index in range(config.layers):
        layer = f"llm.model.model.layers.{index}"
        shapes |= {
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{layer}.self_attn.q_proj.weight": (query, hidden),
            f"{layer}.self_attn.q_proj.bias": (query,),
            f"{layer}.self_attn.k_proj.weight": (config.kv_width, hidden),
            f"{layer}.self_attn.k_proj.bias": (config.kv_width,),
            f"{layer}.self_attn.v_proj.weight": (config.kv_width, hidden),
            f"{layer}.self_attn.v_proj.bias": (config.kv_width,),
            f"{layer}.self_attn.o_proj.weight": (hidden, query),
            f"{layer}.mlp.gate_proj.weight": (mlp, hidden),
            f"{layer}.mlp.up_proj.weight": (mlp, hidden),
            f"{layer}.mlp.down_proj.weight": (hidden, mlp),
        }
    return shapes


def load_tensors(directory: ModelDirectory, config: LlmConfig, *, mapped: bool = True) -> dict[str, Tensor]:
    """The tensors of `llm.pt` as float32 on the CPU, exactly those of `expected_tensors`.

    mapped: float32 tensors stay mapped from the file, so replicas on one machine share them; False
    reads the file at once, which is quicker where each is read once. Raises ModelError naming file
    and tensor.
    """
    path = directory.file(WEIGHTS)
    tensors = read_tensors(path, mapped=mapped)
    _require_own_generation(path, tensors, config)
    expected = expected_tensors(config)
    tied = {TIED_HEAD: expected["llm.model.model.embed_tokens.weight"]} if TIED_HEAD in tensors else {}
    check_tensors(path, tensors, expected | tied)
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ModelError(f"{path}: tensor {name} is {tensor.dtype}, expected floating point")
        if not _finite(tensor):
            raise ModelError(f"{path}: tensor {name} holds values that are not finite")
    return {name: tensors[name].to(torch.float32) for name in expected}


def _require_own_generation(path: Path, tensors: Mapping[str, Tensor], config: LlmConfig) -> None:
    """Raises ModelError for a file of another generation than the yaml says."""
    rows = len(tensors[SPEECH]) if SPEECH in tensors else config.speech.rows
    if rows == config.speech.rows:
        return
    own = next((each.title for each in GENERATIONS if each.speech == config.speech), "another generation")
    for other in GENERATIONS:
        if other.speech.rows == rows:
            raise ModelError(
                f"{path}: its {rows} rows of speech are those of {other.title}; the directory's yaml is of {own}, "
                f"which has {config.speech.rows}"
            )


def model_hash(directory: ModelDirectory) -> str:
    """Hash of what this service loads."""
    return directory.content_hash(identity_files(directory))


def _finite(tensor: Tensor) -> bool:
    blocks = (tensor[start : start + _ROWS_AT_ONCE] for start in range(0, len(tensor), _ROWS_AT_ONCE))
    return all(bool(torch.isfinite(block).all()) for block in blocks)


def read_tensors(path: Path, *, mapped: bool = True) -> dict[str, Tensor]:
    """The tensors of a `torch.save`d mapping by name, left on the disk where its form allows and
    `mapped` asks for it. Raises ModelError naming the file and what is wrong with it.
    """
    try:
        with warnings.catch_warnings():
            # The error says what is worth knowing about an unexpected file.
            warnings.simplefilter("ignore")
            contents = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped and _can_be_mapped(path))
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path}: not a file of tensors (its pickle asks for something else, which is not executed)"
        ) from error
    except (
        Exception
        # An unreadable file can raise any exception in the unpickler; all of them mean the same
        # here.
    ) as error:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), "unreadable")
        raise ModelError(f"{path}: not a file of tensors ({type(error).__name__}: {reason})") from error
    if not isinstance(contents, dict):
        raise ModelError(f"{path}: holds a {type(contents).__name__}, expected a mapping of names to tensors")
    for name, value in contents.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ModelError(f"{path}: entry {name!r} is a {type(value).__name__}, expected a tensor")
    return dict(contents)


def _can_be_mapped(path: Path) -> bool:
    """Whether the file is a zip archive of plain records, as `torch.save` writes it; neither a
    deflated one nor a pickle can be mapped.
    """
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())
