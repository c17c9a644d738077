"""A model directory of random weights for this benchmark: the length of a sentence follows that of
its text and is not random, and the prompts of the five voices differ in length.
"""

import hashlib
import re
import shutil
from pathlib import Path

import torch

from bench import real_size
from bench.generations import random_models, random_weights, sizes
from bench.generations.random_weights import prompts
from cosyserve.model_directory import ModelDirectory

COMPLETE = "complete"
"""A file in the directory that says that nothing is missing, and of which code it is."""
RANDOM = "random weights"
"""How the identity of such a directory begins."""
PROMPT_TOKENS = (50, 87, 131, 168, 224)
"""Their remainders by 25, the length of a block, are far from each other: 0, 12, 6, 18 and 24. They
decide how many tokens the first sound waits for.
"""
VOICES = {f"prompt-{tokens}": tokens for tokens in PROMPT_TOKENS}
TOKENS_PER_TEXT_ID = 1.22
"""Of a sentence: 92 text ids on average, 4.5 s of 25 tokens each."""
_RATIO = re.compile(r"max_token_text_ratio: [\d.]+")


def made(target: Path, generation: str, size: str = "published") -> Path:
    """`target`, with the model directory in it; one that other code or other arguments have written
    is replaced. Raises ValueError if the yaml names no ratio of lengths.
    """
    mark = target / COMPLETE
    wanted = f"{generation} {size} {_source()}\n"
    if mark.exists() and mark.read_text() == wanted:
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    real_size.write_model(target, generation, size, ends=False)
    yaml = target / ModelDirectory(target).yaml_name
    text, count = _RATIO.subn(f"max_token_text_ratio: {TOKENS_PER_TEXT_ID}", yaml.read_text(encoding="utf-8"))
    if not count:
        raise ValueError(f"{yaml} has no max_token_text_ratio")
    yaml.write_text(text, encoding="utf-8")
    given = torch.load(target / "spk2info.pt", weights_only=True)
    first = next(iter(given.values()))
    torch.save({name: prompts({name: first}, tokens)[name] for name, tokens in VOICES.items()}, target / "spk2info.pt")
    mark.write_text(wanted)
    return target


def identity(model: Path) -> str:
    """What differs between two models: a hash of the weights, voices and yaml, or the code that
    made it. Raises ModelError for a directory that is none.
    """
    if (mark := model / COMPLETE).exists():
        return f"{RANDOM}: {mark.read_text().strip()}"
    directory = ModelDirectory(model)
    names = ("llm.pt", "flow.pt", "hift.pt", "spk2info.pt", directory.yaml_name)
    return f"{model.name}: {directory.content_hash(names)[:16]}"


def voices(model: Path, most: int = len(VOICES)) -> tuple[str, ...]:
    """Names of voices of `spk2info.pt` whose prompts differ in length, `most` at most."""
    given = torch.load(model / "spk2info.pt", weights_only=True)
    by_length = {entry["flow_prompt_speech_token"].shape[1]: name for name, entry in reversed(given.items())}
    return tuple(by_length[length] for length in sorted(by_length))[:most]


def _source() -> str:
    """Hash of the code that decides the content of the directory."""
    modules = (real_size, random_models, random_weights, sizes)
    sources = [Path(__file__), *(Path(str(module.__file__)) for module in modules)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
