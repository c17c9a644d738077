"""What every file of the product has to be: short, named for its idea, silent about the machine it
was written on, and without the words that docs/glossary.md keeps out of code, help texts and
messages.
"""

import re
import subprocess
from pathlib import Path

import pytest

from tests.stacks.up_process import ROOT

GENERATED = ("cosyserve/v1/", "cosyserve/foreign/")
FORBIDDEN_NAMES = {"utils", "common", "helpers", "manager", "base"}
# Written in halves, for this file is searched too.
FORBIDDEN_TEXT = re.compile("|".join(["/work" + "/", "\\.\\./" + "shared/", "/tmp/" + "brief", "gpu" + "-lease"]))


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return [Path(name) for name in names if name and (ROOT / name).exists()]


def modules() -> list[Path]:
    code = ("cosyserve/", "services/", "tools/", "bench/")
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and str(path).startswith(code) and not str(path).startswith(GENERATED)
    ]


def read_by_users() -> list[Path]:
    """The product with what is not Python: contracts, charts, alerts, compose files, the page."""
    kinds = {".proto", ".yaml", ".yml", ".tpl", ".toml", ".html", ".js", ".cu"}
    other = [path for path in tracked() if path.suffix in kinds and path.parts[0] not in ("docs", "tests")]
    return modules() + other


def text_of(path: Path) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def test_no_module_is_longer_than_300_lines() -> None:
    assert not {str(path): lines for path in modules() if (lines := len((text_of(path) or "").splitlines())) > 300}


def test_modules_are_named_for_one_idea() -> None:
    assert not [str(path) for path in modules() if FORBIDDEN_NAMES & set(path.stem.split("_"))]


def test_modules_begin_with_their_purpose() -> None:
    assert not [
        str(path)
        for path in modules()
        if path.name != "__init__.py" and not (text_of(path) or "").startswith(('"""', 'r"""'))
    ]


def test_no_file_names_a_place_of_the_machine_it_was_written_on() -> None:
    texts = {str(path): text_of(path) or "" for path in tracked()}
    assert not {path: match[0] for path, text in texts.items() if (match := FORBIDDEN_TEXT.search(text))}


def test_prose_has_at_most_100_columns() -> None:
    """But for tables, code, what a command writes, and words that cannot be parted."""
    apart = re.compile(r"^ *```.*?^ *```|^<!--.*?end -->", re.MULTILINE | re.DOTALL)
    long = {}
    for path in tracked():
        if path.suffix == ".md":
            lines = apart.sub("", text_of(path) or "").splitlines()
            prose = (line for line in lines if not re.match(r" *\||    |\[!\[", line))
            wide = [line for line in prose if len(line) > 100 and " " in re.sub(r"`[^`]+`", "", line.strip())]
            if wide:
                long[str(path)] = wide
    assert not long


def test_each_slow_test_exists() -> None:
    """A name of `slow.txt` that no test has would slow `make test` down without notice. conftest.py
    refuses those in a file that exists.
    """
    lines = (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if not (ROOT / line.partition("::")[0]).exists()]


UNUSED = ("nobody", "whoever", "anew", "told", "tells", "borne", "mend", "mends", "mended", "heed", "heeded")
KEPT = {
    "cosyserve/host/doctor/finding.py": {"mend"},  # a key of `cosyserve doctor --json`
    "bench/parts/ledger.py": {"told"},  # a key of the ledger, which earlier runs wrote
    "bench/reports/tables.py": {"told"},
    "bench/acceptance/step.py": {"told"},
    # English that is read or spoken:
    "bench/frontend.py": {"nobody"},
    "bench/text_soak.py": {"nobody", "told"},
    "services/frontend/normalization/english/names/abbreviations.py": {"told"},
    "services/frontend/tokenizers/phonemes/homographs.py": {"told"},
}
WORD = re.compile(r"(?<![a-z])(" + "|".join(UNUSED) + r")(?![a-z])", re.IGNORECASE)


def test_product_code_does_without_them() -> None:
    for path in read_by_users():
        assert {word.lower() for word in WORD.findall(text_of(path) or "")} <= KEPT.get(str(path), set()), path


def test_the_glossary_gives_the_replacement_of_each() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Words that are not used")[2]
    assert not [word for word in UNUSED if not re.search(rf"^\|[^|]*\b{word}\b[^|]*\| .+\|$", glossary, re.MULTILINE)]
