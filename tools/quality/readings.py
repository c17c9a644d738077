"""`python -m tools.quality.readings`: how many written forms are read as people read them.

The texts and their spoken forms (`spoken_forms`) lie in
`tests/unit/frontend/normalization/readings_*.tsv`: class, text, spoken. Nothing is spoken: what the
frontend makes of a text is compared (`reading_judges`). Exit status: 0 within --most-wrong, else 1.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cosyserve.model_directory import ModelDirectory
from services.frontend.analysis.analyzer import Analyzer
from services.frontend.normalization.normalize import Normalizer
from services.frontend.normalization.wetext_package import WeText
from services.frontend.tokenizers.bpe import TextTokenizer
from services.frontend.tokenizers.phonemes.tokenizer import PhonemeTokenizer
from tools.quality.words.reading_judges import ChineseJudge, EnglishJudge

ROOT = Path(__file__).parents[2]
TEXTS = {
    language: ROOT / f"tests/unit/frontend/normalization/readings_{language}.tsv" for language in ("chinese", "english")
}
PAGE = ROOT / "docs/readings.md"
_MARKED = "<!-- {}: written by python -m tools.quality.readings --write -->", "<!-- {}: end -->"
_COLUMNS = ["class", "text", "spoken"]


class Row(NamedTuple):
    """One text."""

    kind: str
    text: str
    spoken: str


class ReadText(NamedTuple):
    """One text as it is read now."""

    row: Row
    said: str
    right: bool


def read_rows(path: Path) -> list[Row]:
    """The texts of one language. Raises ValueError naming the file and the line that is malformed
    or a repetition.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0].split("\t") != _COLUMNS:
        raise ValueError(f"{path}: line 1: expected the columns {', '.join(_COLUMNS)}")
    rows: list[Row] = []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t")
        if len(fields) != len(_COLUMNS) or not all(fields):
            raise ValueError(f"{path}: line {number}: expected {len(_COLUMNS)} columns, each with something in it")
        rows.append(Row(fields[0], fields[1].replace("\\n", "\n"), fields[2]))
    if len({row.text for row in rows}) != len(rows):
        raise ValueError(f"{path}: holds a text twice")
    return rows


@cache
def judge_of(language: str) -> ChineseJudge | EnglishJudge:
    """Chinese with the byte tokenizer of the golden model, English with the bundled voice's
    phonemes.
    """
    if language == "chinese":
        return ChineseJudge(Analyzer(Normalizer(WeText()), TextTokenizer(ModelDirectory(ROOT / "tests/golden/tiny"))))
    tokenizer = PhonemeTokenizer(ModelDirectory(ROOT / "models/demo"))
    return EnglishJudge(Analyzer(Normalizer(WeText()), tokenizer), tokenizer)


def judged(rows: Sequence[Row], language: str) -> list[ReadText]:
    """`rows` as they are read now. Raises ValueError naming the text whose spoken forms are
    malformed.
    """
    judge = judge_of(language)
    return [ReadText(row, *judge.judge(row.text, row.spoken)) for row in rows]


def section(language: str, read: Sequence[ReadText]) -> list[str]:
    """The section of docs/readings.md that these readings make."""
    wrong = [one for one in read if not one.right]
    count, right = Counter(one.row.kind for one in read), Counter(one.row.kind for one in read if one.right)
    lines = [
        f"## {language.capitalize()}: {len(wrong)} of {len(read)} wrong",
        "",
        "| class | texts | right |",
        "|---|---|---|",
    ]
    lines += [f"| {kind} | {count[kind]} | {right[kind]} |" for kind in count]
    if wrong:
        lines += ["", "| class | written | is read | is said by people |", "|---|---|---|---|"]
        lines += [
            f"| {one.row.kind} | {_cell(one.row.text)} | {_cell(one.said)} | {_cell(one.row.spoken)} |" for one in wrong
        ]
    return ["", *lines, ""]


def _cell(text: str) -> str:
    return "`` " + text.replace("\n", "⏎").replace("|", "\\|") + " ``"


def page_with(page: str, language: str, lines: Sequence[str]) -> str:
    """`page` with `lines` between the two marks of `language`. Raises ValueError when it lacks
    them.
    """
    first, last = (mark.format(language) for mark in _MARKED)
    before, begin, rest = page.partition(first)
    _, end, behind = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"expected {first} and {last} in the page")
    return "\n".join([before + begin, *lines, end + behind])


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(
        prog="python -m tools.quality.readings", description="How many written forms are read as people do."
    )
    options.add_argument("--language", choices=TEXTS, help="(default: those whose texts there are)")
    options.add_argument("--texts", type=Path, metavar="FILE", help="other texts of --language, the same three columns")
    options.add_argument("--json", action="store_true", help="print everything as one JSON object")
    options.add_argument("--write", action="store_true", help="put the figures into docs/readings.md")
    options.add_argument(
        "--most-wrong", type=float, default=1.0, metavar="X", help="exit 1 above this part, 0.03 for 3 %% (default: 1)"
    )
    arguments = options.parse_args(argv)
    if arguments.texts is not None and (arguments.language is None or arguments.write):
        options.error("--texts needs --language and has no --write")
    languages = (
        [arguments.language] if arguments.language else [language for language, path in TEXTS.items() if path.exists()]
    )
    results = {language: judged(read_rows(arguments.texts or TEXTS[language]), language) for language in languages}
    if arguments.write:
        page = PAGE.read_text(encoding="utf-8")
        for language, read in results.items():
            page = page_with(page, language, section(language, read))
        PAGE.write_text(page, encoding="utf-8")
    if arguments.json:
        print(
            json.dumps(
                {name: [_as_json(one) for one in read] for name, read in results.items()}, ensure_ascii=False, indent=1
            )
        )
    else:
        for language, read in results.items():
            _print(language, read)
    return int(any(sum(not one.right for one in read) > arguments.most_wrong * len(read) for read in results.values()))


def _as_json(one: ReadText) -> dict[str, object]:
    return {"class": one.row.kind, "text": one.row.text, "spoken": one.row.spoken, "said": one.said, "right": one.right}


def _print(language: str, read: Sequence[ReadText]) -> None:
    count, right = Counter(one.row.kind for one in read), Counter(one.row.kind for one in read if one.right)
    for kind in count:
        print(f"{language} {kind}: {right[kind]} right, {count[kind] - right[kind]} wrong")
        for one in read:
            if one.row.kind == kind and not one.right:
                print(f"    {one.row.text!r}\n        is read     {one.said!r}\n        people say  {one.row.spoken!r}")
    wrong = len(read) - sum(right.values())
    print(f"{language}: {wrong} of {len(read)} wrong, {wrong / len(read):.1%}")


if __name__ == "__main__":
    sys.exit(main())
