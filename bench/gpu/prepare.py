"""Weights on the disk and kernels in the compiler's cache: `python -m bench.gpu.prepare MODEL
[kernels ...]`.

Without kernels: the model directory of `bench.real_size`, unless it is there. With `llm ROWS ...`:
the kernels of decode steps of so many rows (0: of a chunk of prompts). With `sharing`: those of the
steps that only the part of this name runs.
"""

import hashlib
import shutil
import sys
from pathlib import Path

COMPLETE = "complete"
"""A file in the directory that says that nothing is missing."""


def model(target: Path) -> None:
    """Random weights of the published sizes in `target`; what other code has left there is written
    again.
    """
    from bench import real_size

    mark = target / COMPLETE
    sources = b"".join(Path(source).read_bytes() for source in (real_size.__file__, real_size.__file__))
    source_hash = hashlib.sha256(sources).hexdigest()
    if mark.exists() and mark.read_text() == source_hash:
        print(f"{target} is there")
        return
    shutil.rmtree(target, ignore_errors=True)
    real_size.write(target)
    mark.write_text(source_hash)
    print(f"{target} written")


def llm(rows: list[int]) -> None:
    import torch

    from bench.gpu.llm.decode_steps import captured
    from bench.gpu.llm.tuning import filled, model_on
    from bench.real_size import PUBLISHED_LLM
    from services.llm.gpu.prefill import PrefillStep

    packed = model_on(torch.device("cuda"), PUBLISHED_LLM.layers, torch.bfloat16)
    for count in rows:
        if count:
            captured(packed, count, 300)
        else:
            PrefillStep(packed, filled(packed, 300)).launch()
    torch.cuda.synchronize()


def sharing() -> None:
    import torch

    from bench.gpu.llm.tuning import filled, model_on
    from bench.gpu.sharing.decoding import blocks_of
    from bench.gpu.sharing.rows import EARLY, SEVERAL
    from bench.real_size import PUBLISHED_LLM
    from services.llm.gpu.decode import DecodeStep

    packed = model_on(torch.device("cuda"), PUBLISHED_LLM.layers, torch.bfloat16)
    for way in (EARLY, SEVERAL):
        DecodeStep(packed, filled(packed, 300), 1, blocks_of(way)).launch()
    torch.cuda.synchronize()


def main() -> None:
    match sys.argv[1:]:
        case ["llm", *rows] if rows:
            llm([int(count) for count in rows])
        case ["sharing"]:
            sharing()
        case [target]:
            model(Path(target))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
