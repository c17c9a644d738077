"""The text front end against `text_frontend.json`, and the voices of `spk2info.pt` against the
arrays they are made from.
"""

import importlib.metadata
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

from cosyserve.errors import ModelError
from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.loading import read_tokenizer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voices.speaker_file import read_voices
from tools.verify.report import Report, Row

FILE = "text_frontend.json"
VOICES = "spk2info.pt"
RAISES = "EXC "
"""Begins a recorded result where the reference raised; here it must give some result instead."""
_VOICE_SOURCES = {
    ("zs_a", "prompt_text_ids"): ("llm.npz", "prompt_text_ids", "<i4"),
    ("zs_a", "prompt_speech_tokens"): ("flow_encoder.npz", "prompt_token", "<i4"),
    ("zs_a", "prompt_mel"): ("flow_mel.npz", "prompt_feat", "<f4"),
    ("zs_a", "speaker_embedding"): ("flow_encoder.npz", "spk_embedding", "<f4"),
    ("spk_a", "speaker_embedding"): ("flow_encoder.npz", "spk_embedding", "<f4"),
}


def verify(directory: Path, report: Report) -> None:
    """Compare every case of `text_frontend.json` and every voice of the bundle, all for
    equality.
    """
    try:
        tokenizer = read_tokenizer(ModelDirectory(directory))
    except ModelError as error:
        report.missing(FILE, f"no tokenizer to compare with: {error}")
        return
    path = directory / FILE
    if path.exists():
        _verify_text(json.loads(path.read_text(encoding="utf-8")), tokenizer, report)
    else:
        report.missing(FILE, "no such file in the bundle")
    _verify_voices(directory, tokenizer, report)


def _verify_text(recorded: dict[str, Any], tokenizer: Tokenizer, report: Report) -> None:
    for name, entry in recorded.items():
        if name == "tokenizer":
            _verify_tokenizer(entry, tokenizer, report)
        elif name == "text_normalize_without_wetext":
            _verify_cases(
                f"{FILE}/{name}",
                entry,
                Analyzer(Normalizer(None, reference=True), tokenizer, allow_special=True),
                "",
                report,
            )
        elif name == "text_normalize_with_wetext":
            _verify_with_package(f"{FILE}/{name}", entry, tokenizer, report)
        else:
            report.missing(f"{FILE}/{name}", "unknown entry: nothing here makes it")


def _verify_tokenizer(recorded: dict[str, Any], tokenizer: Tokenizer, report: Report) -> None:
    for name, entry in recorded.items():
        if name == "added_special_ids":
            for token, token_id in entry.items():
                _same(report, f"{FILE}/special {token}", tokenizer.id_of(token), token_id)
        elif name == "len":
            _same(report, f"{FILE}/len", len(tokenizer), entry)
        elif name == "encode":
            for index, case in enumerate(entry):
                _same(
                    report, f"{FILE}/encode[{index}]", tokenizer.encode(case["text"], allow_special=True), case["ids"]
                )
        else:
            report.missing(f"{FILE}/tokenizer.{name}", "unknown entry: nothing here makes it")


def _verify_with_package(name: str, recorded: dict[str, Any], tokenizer: Tokenizer, report: Report) -> None:
    if importlib.util.find_spec("wetext") is None:
        report.missing(name, "wetext is not installed")
        return
    from services.frontend.normalization.wetext_package import WeText

    made_with, installed = recorded.get("wetext_version", "unknown"), importlib.metadata.version("wetext")
    note = "" if made_with == installed else f"recorded with wetext {made_with}, installed {installed}; "
    analyzer = Analyzer(Normalizer(WeText(reference=True), reference=True), tokenizer, allow_special=True)
    _verify_cases(name, recorded["cases"], analyzer, note, report)


def _verify_cases(name: str, cases: list[dict[str, Any]], analyzer: Analyzer, note: str, report: Report) -> None:
    for index, case in enumerate(cases):
        _same(report, f"{name}[{index}].split", list(analyzer.segments(case["text"])), case["split"], note)
        _same(report, f"{name}[{index}].nosplit", analyzer.normalise(case["text"]), case["nosplit"], note)


def _verify_voices(directory: Path, tokenizer: Tokenizer, report: Report) -> None:
    if not (directory / VOICES).exists():
        report.missing(VOICES, "no such file in the bundle")
        return
    try:
        voices = {voice.id: voice for voice in read_voices(ModelDirectory(directory), tokenizer)}
    except ModelError as error:
        report.missing(VOICES, str(error))
        return
    known = {name for name, _ in _VOICE_SOURCES}
    for name in sorted(voices.keys() ^ known):
        reason = "unknown voice: no array to compare with" if name in voices else "no such voice in the bundle"
        report.missing(f"{VOICES}/{name}", reason)
    for (name, field), (file, array, kind) in _VOICE_SOURCES.items():
        if name not in voices:
            continue
        if not (directory / file).exists():
            report.missing(f"{VOICES}/{name}.{field}", f"{file} is not in the bundle")
            continue
        with np.load(directory / file, allow_pickle=False) as archive:
            want = archive[array].reshape(-1) if array in archive.files else None
        if want is None:
            report.missing(f"{VOICES}/{name}.{field}", f"{file} has no array {array}")
            continue
        value = getattr(voices[name], field)
        got = np.frombuffer(value, kind) if isinstance(value, bytes) else np.array(value, kind)
        report.compare(f"{VOICES}/{name}.{field}", got, want, 0.0)


def _same(report: Report, name: str, got: Any, want: Any, note: str = "") -> None:
    """A row that asks for equality; error counts the places that differ."""
    if isinstance(want, str) and want.startswith(RAISES):
        report.rows.append(Row(name, 0.0, 0.0, "ok", f"the reference raises ({want}); gives {_short(got)}"))
        return
    differing = 0 if got == want else _differing(got, want)
    verdict = "FAIL" if differing else "ok"
    shown = f"{note}got {_short(got)}, expected {_short(want)}" if differing else ""
    report.rows.append(Row(name, float(differing), 0.0, verdict, shown))


def _differing(got: Any, want: Any) -> int:
    if not isinstance(got, list | str) or not isinstance(want, list | str):
        return 1
    return max(1, sum(1 for a, b in zip(got, want, strict=False) if a != b) + abs(len(got) - len(want)))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."
