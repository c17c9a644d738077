"""Words that docs/glossary.md keeps out of product code, help texts and messages."""

import re

from tests.stacks.up_process import ROOT
from tests.unit.repository.test_files import modules, text_of

UNUSED = ("nobody", "whoever", "anew", "told", "tells", "borne", "mend", "mends", "mended", "heed", "heeded")
KEPT = {
    "cosyserve/host/doctor/finding.py": {"mend"},  # a key of `cosyserve doctor --json`
    "bench/parts/ledger.py": {"told"},  # a key of the ledger, which earlier runs wrote
    "bench/reports/tables.py": {"told"},
    # English that is read or spoken:
    "bench/frontend.py": {"nobody"},
    "bench/text_soak.py": {"nobody", "told"},
    "services/frontend/normalization/english/names/abbreviations.py": {"told"},
    "services/frontend/tokenizers/phonemes/homographs.py": {"told"},
}
WORD = re.compile(r"(?<![a-z])(" + "|".join(UNUSED) + r")(?![a-z])", re.IGNORECASE)


def test_product_code_does_without_them() -> None:
    for path in modules():
        assert {word.lower() for word in WORD.findall(text_of(path) or "")} <= KEPT.get(str(path), set()), path


def test_the_glossary_gives_the_replacement_of_each() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").partition("## Words that are not used")[2]
    assert not [word for word in UNUSED if not re.search(rf"^\|[^|]*\b{word}\b[^|]*\| .+\|$", glossary, re.MULTILINE)]
