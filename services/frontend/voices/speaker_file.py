"""`spk2info.pt`: the preset voices of a model directory.

Source: compatibility specifications of CosyVoice2, section 2.7, and CosyVoice3, section 2.2. Three
layouts are read: a speaker vector alone (`embedding`), the zero-shot dictionary (`prompt_text`,
`llm_prompt_speech_token`, `flow_prompt_speech_token`, `prompt_speech_feat`, `flow_embedding`) and
the Triton runtime's (`prompt_text` as a string, `speech_token`, `speech_feat`, `embedding`). An
entry of each layout may also hold notes on the voice (`services.frontend.voices.voice_notes`).

The speech tokens of a voice mean other sounds in another generation, so a file of another one is
refused: it is known by the notes, and by the system part, which the text of every prompt of
CosyVoice3 begins with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.generation import Generation
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIMENSION
from services.frontend.tokenizers.placeholders import END_OF_PROMPT
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import Voice, cut_of
from services.frontend.voices.voice_notes import FIELD, UNNAMED_GENERATION, Notes, noted_text_ids, notes_of

FILE = "spk2info.pt"
_SPEECH = ("flow_prompt_speech_token", "llm_prompt_speech_token", "speech_token")
_MEL = ("prompt_speech_feat", "speech_feat")
_RECORDINGS = (b"RIFF", b"fLaC", b"OggS")
_VECTOR = ("flow_embedding", "embedding")


def read_voices(directory: ModelDirectory, tokenizer: Tokenizer) -> list[Voice]:
    """The voices of a model directory, ordered by id; none when it has no `spk2info.pt`.

    tokenizer: encodes a transcript that is stored as a string, with control tokens parsed (the
    operator wrote the file, not a caller); the ids of a transcript are below its length. Raises
    ModelError naming the file, the voice and the field for everything that cannot be used.
    """
    return [voice for voice, _ in read_presets(directory, tokenizer)]


def read_presets(directory: ModelDirectory, tokenizer: Tokenizer) -> list[tuple[Voice, Notes]]:
    """As `read_voices`, each voice with its notes."""
    path = directory.path / FILE
    return read_file(path, tokenizer, generation_of(directory)) if path.exists() else []


def read_file(path: Path, tokenizer: Tokenizer, generation: Generation) -> list[tuple[Voice, Notes]]:
    """The voices of one file, ordered by id, each with its notes. generation: of the model that is
    to speak them. Raises as `read_voices` does.
    """
    system = SystemPart(generation, tokenizer)
    with path.open("rb") as file:
        begin = file.read(4)
    if begin in _RECORDINGS or begin[:3] == b"ID3":
        raise ModelError(
            f"{path}: a recording, not a file of voices; create a voice from it with: cosyserve voices add {path}"
        )
    try:
        speakers = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damaged part of the archive raises
        raise ModelError(
            f"{path}: not a file of plain tensors: it is damaged, another kind of file, or holds more than that"
        ) from error
    if not isinstance(speakers, dict):
        raise ModelError(f"{path}: holds a {type(speakers).__name__}, expected a mapping of voice id to fields")
    voices = []
    for name, entry in speakers.items():
        if not isinstance(name, str) or not isinstance(entry, dict):
            raise ModelError(f"{path}: entry {name!r} is not a voice id with a mapping of fields")
        try:
            voices.append((voice_of(name, entry, tokenizer, system), _notes(entry)))
        except ValueError as error:
            raise ModelError(f"{path}: voice {name!r}: {error}") from error
    return sorted(voices, key=lambda pair: pair[0].id)


def entry_of(voice: Voice) -> dict[str, Tensor]:
    """A voice in the zero-shot layout; one without a prompt as `embedding` alone."""
    vector = _floats(voice.speaker_embedding)[None]
    if not voice.prompt_speech_tokens:
        return {"embedding": vector}
    prompt = {
        "prompt_text": torch.tensor([voice.prompt_text_ids], dtype=torch.int32),
        "llm_prompt_speech_token": torch.tensor([voice.prompt_speech_tokens], dtype=torch.int32),
        "flow_prompt_speech_token": torch.tensor(
            [voice.prompt_speech_tokens[-voice.decoder_tokens :]], dtype=torch.int32
        ),
        "prompt_speech_feat": _floats(voice.prompt_mel).reshape(1, -1, MEL_BINS),
    }
    return prompt | _lengths(prompt) | {"llm_embedding": vector, "flow_embedding": vector}


def cut_entry(entry: Mapping[str, Any], generation: Generation) -> dict[str, Any]:
    """A voice in the zero-shot layout with the decoder's prompt cut for an earlier first sound
    (`services.frontend.voices.voice`); unchanged when its prompt is already cut, short or
    missing. generation: of the model that speaks it. Raises ValueError naming an invalid field.
    """
    if "flow_prompt_speech_token" not in entry:
        return dict(entry)
    tokens, mel = _prompt(entry, "flow_prompt_speech_token")
    cut = cut_of(len(tokens), generation)
    changed = {
        "flow_prompt_speech_token": torch.tensor([tokens[cut:]], dtype=torch.int32),
        _first(entry, _MEL): mel[MEL_FRAMES_PER_TOKEN * cut :].clone()[None],
    }
    # The speech-token model still receives the whole prompt, which the transcript belongs to.
    whole = {"llm_prompt_speech_token": torch.tensor([tokens], dtype=torch.int32)}
    return whole | dict(entry) | changed | _lengths(changed)


def triton_entry_of(voice: Voice, transcript: str) -> dict[str, Tensor | str]:
    """A voice in the Triton runtime's layout, whose transcript is text and whose prompt is the same
    for both networks. Raises ValueError for a voice without prompt or transcript, and for one with
    a cut prompt.
    """
    if not voice.prompt_speech_tokens or not transcript:
        raise ValueError(
            f"the voice {voice.id!r} has no {'transcript' if voice.prompt_speech_tokens else 'prompt'}, which this "
            "layout needs"
        )
    if voice.decoder_tokens < len(voice.prompt_speech_tokens):
        raise ValueError(
            f"the voice {voice.id!r} has a cut prompt (the decoder receives {voice.decoder_tokens} of its "
            f"{len(voice.prompt_speech_tokens)} speech tokens), and this layout has one prompt for both networks; "
            "zero-shot holds it"
        )
    return {
        "prompt_text": transcript,
        "speech_token": torch.tensor([voice.prompt_speech_tokens], dtype=torch.int32),
        "speech_feat": _floats(voice.prompt_mel).reshape(1, -1, MEL_BINS),
        "embedding": _floats(voice.speaker_embedding)[None],
    }


def voice_of(name: str, entry: Mapping[str, Any], tokenizer: Tokenizer, system: SystemPart | None = None) -> Voice:
    """Convert an entry to a voice, its prompt trimmed to two mel frames per token; the decoder's
    part may begin later than the speech-token model's (`services.frontend.voices.voice`). system:
    of the model that is to speak it; None: one of CosyVoice2. Raises ValueError naming the field,
    or the generation that the entry belongs to.
    """
    system = system or SystemPart(COSYVOICE2, tokenizer)
    made_for = notes_of(entry).generation if FIELD in entry else system.generation.name
    if (made_for or UNNAMED_GENERATION) != system.generation.name:
        raise ValueError(f"it was made with a model of {made_for or UNNAMED_GENERATION}, {_of_another(system)}")
    vector = _tensor(entry, _first(entry, _VECTOR), (SPEAKER_DIMENSION,))
    speech = [field for field in _SPEECH if field in entry]
    if not speech:
        return Voice(name, (), (), b"", _bytes(vector))
    tokens, mel = _prompt(entry, speech[0])
    if not tokens:
        raise ValueError(f"field {speech[0]} and its mel hold less than one token of prompt")
    tokens = _whole_prompt(entry, speech, tokens)
    return Voice(name, _transcript(entry, tokenizer, system), tokens, _bytes(mel), _bytes(vector))


def _prompt(entry: Mapping[str, Any], field: str) -> tuple[tuple[int, ...], Tensor]:
    """The tokens of `field` and the mel of the decoder's prompt, two frames for each token."""
    tokens, mel = _ids(entry, field), _tensor(entry, _first(entry, _MEL), (-1, MEL_BINS))
    length = min(len(mel) // MEL_FRAMES_PER_TOKEN, len(tokens))
    return tokens[:length], mel[: MEL_FRAMES_PER_TOKEN * length]


def _lengths(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}_len": torch.tensor([value.shape[1]], dtype=torch.int32) for name, value in fields.items()}


def _whole_prompt(entry: Mapping[str, Any], speech: Sequence[str], decoder: tuple[int, ...]) -> tuple[int, ...]:
    """The prompt of the speech-token model: the decoder's tokens, possibly preceded by others.
    Raises ValueError when they do not match.
    """
    whole = decoder
    for field in speech[1:]:
        heard = _ids(entry, field)
        if heard[: len(decoder)] == decoder:
            continue
        if len(heard) <= len(decoder) or heard[-len(decoder) :] != decoder:
            raise ValueError(
                f"field {speech[0]} is neither the beginning nor the end of {field}; a voice has one prompt"
            )
        whole = heard
    return whole


def _transcript(entry: Mapping[str, Any], tokenizer: Tokenizer, system: SystemPart) -> tuple[int, ...]:
    written = entry.get("prompt_text")
    known = noted_text_ids(entry, written) if isinstance(written, str) else written
    if known is None and isinstance(written, str):
        # Files of this layout have the plain transcript in every generation.
        return system.prefixed(tuple(tokenizer.encode(written, allow_special=True)))
    ids = _ids({"prompt_text": known}, "prompt_text")
    over = [token for token in ids if not 0 <= token < len(tokenizer)]
    if over:
        raise ValueError(f"field prompt_text holds {over[0]}, allowed 0 to {len(tokenizer) - 1}")
    if ids and system.ids and not system.is_in(ids):
        raise ValueError(
            f"field prompt_text has no {system.generation.prompt.end_mark}, which every prompt of "
            f"{system.generation.title} has, so it is of another generation, {_of_another(system)}"
        )
    other = None if system.ids else _other_in(ids, system.generation, tokenizer)
    if other is not None:
        raise ValueError(
            f"field prompt_text begins with the system part of {other.title}, so it is of that generation, "
            f"{_of_another(system)}"
        )
    return ids


def _of_another(system: SystemPart) -> str:
    return f"and this model is of {system.generation.title}: its speech tokens mean other sounds"


def _other_in(ids: tuple[int, ...], generation: Generation, tokenizer: Tokenizer) -> Generation | None:
    """The other generation with whose system part, as this tokenizer writes it, the ids begin."""
    if tokenizer.id_of(END_OF_PROMPT) not in ids:
        return None
    others = [each for each in GENERATIONS if each is not generation and each.prompt.required]
    parts = [(each, SystemPart(each, tokenizer).ids) for each in others]
    return next((each for each, part in parts if ids[: len(part)] == part), None)


def _notes(entry: Mapping[str, Any]) -> Notes:
    """The transcript of the layout itself takes precedence over that of the notes."""
    notes, text = notes_of(entry), entry.get("prompt_text")
    return replace(notes, transcript=text) if isinstance(text, str) and text else notes


def _first(entry: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    name = next((field for field in fields if field in entry), None)
    if name is None:
        raise ValueError(f"field {' or '.join(fields)} is missing")
    return name


def _tensor(entry: Mapping[str, Any], field: str, shape: tuple[int, ...]) -> Tensor:
    """float32 of `shape` (-1: any length), a leading 1 in the file accepted; the field must be
    floating-point and finite.
    """
    value = entry[field]
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise ValueError(f"field {field} is {_kind(value)}, expected a floating-point tensor")
    sizes = tuple(value.shape[1:]) if value.ndim == len(shape) + 1 and value.shape[0] == 1 else tuple(value.shape)
    if len(sizes) != len(shape) or any(want not in (-1, have) for want, have in zip(shape, sizes, strict=True)):
        expected = ", ".join("frames" if size == -1 else str(size) for size in shape)
        raise ValueError(f"field {field} has shape {list(value.shape)}, expected [1, {expected}]")
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"field {field} is not finite everywhere")
    return value.detach().reshape(sizes).to(torch.float32)


def _ids(entry: Mapping[str, Any], field: str) -> tuple[int, ...]:
    value = entry.get(field)
    if not isinstance(value, Tensor) or value.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"field {field} is {_kind(value)}, expected an int32 or int64 tensor")
    if value.ndim not in (1, 2) or (value.ndim == 2 and value.shape[0] != 1):
        raise ValueError(f"field {field} has shape {list(value.shape)}, expected [1, length]")
    return tuple(value.reshape(-1).tolist())


def _kind(value: Any) -> str:
    return (
        "missing"
        if value is None
        else f"a {value.dtype} tensor"
        if isinstance(value, Tensor)
        else f"a {type(value).__name__}"
    )


def _bytes(values: Tensor) -> bytes:
    return values.contiguous().numpy().astype("<f4").tobytes()


def _floats(data: bytes) -> Tensor:
    return torch.from_numpy(np.frombuffer(data, "<f4").astype(np.float32))
