"""A model directory whose sentences have a length that is asked for: for loads of the services of
which only the times count.
"""

import re
import statistics
from pathlib import Path

from bench.load.engines import text_ids
from bench.load.stack import TEXTS
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import TOKENS_PER_SECOND

_RATIO = re.compile(r"(min|max)_token_text_ratio: [\d.]+")


def sentences_of(model: Path, seconds: float, target: Path) -> Path:
    """`target`, an empty directory, with the files of `model` as links and a yaml by which each
    sentence has so many speech tokens that `TEXTS` take `seconds` on average. Raises ValueError if
    the yaml does not name both ratios of lengths.
    """
    name = ModelDirectory(model).yaml_name
    for each in model.iterdir():
        if each.name != name:
            (target / each.name).symlink_to(each.resolve())
    ratio = seconds * TOKENS_PER_SECOND / statistics.fmean(len(ids) for ids in text_ids(model, TEXTS))
    yaml, count = _RATIO.subn(rf"\1_token_text_ratio: {ratio:.3f}", (model / name).read_text(encoding="utf-8"))
    if count != 2:
        raise ValueError(f"{model / name} has {count} of min_token_text_ratio and max_token_text_ratio")
    (target / name).write_text(yaml, encoding="utf-8")
    return target
