"""What the scans leave out: each finding by rule and file, with a reason, and nothing else. The
scanners are not installed here; what ruff and a look at strings find as they do is judged, so that
most new findings are seen before `make security`.
"""

import collections
import json
import math
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.security.__main__ import GENERATED, PRODUCT, ROOT, Finding, judged, text_files

HEX = "Hex High Entropy String"
ALLOWED = tomllib.loads((ROOT / "tools" / "security" / "allowed.toml").read_text(encoding="utf-8"))["allowed"]


def test_every_allowance_has_a_reason_and_a_place() -> None:
    for entry in ALLOWED:
        assert set(entry) <= {"rule", "file", "reason"}
        assert len(entry["reason"]) > 20, entry
        assert (ROOT / entry.get("file", ".")).exists(), entry
    pairs = [(entry["rule"], entry.get("file")) for entry in ALLOWED]
    assert len(pairs) == len(set(pairs))


def test_only_what_is_allowed_is_left_out() -> None:
    allowed = [{"rule": "B1", "file": "a/b", "reason": "x"}, {"rule": "B2", "reason": "x"}]
    known = [Finding("B1", "a/b/c.py", 3, "text"), Finding("B2", "anywhere.py", 4, "text")]
    assert judged(known, allowed) == []
    assert judged([*known, Finding("B1", "a/bc.py", 5, "another")], allowed) == ["a/bc.py:5: B1: another"]
    assert judged(known[1:], allowed) == ["allowed.toml: B1 a/b matches nothing any more"]


def test_what_ruff_finds_as_bandit_does_is_allowed() -> None:
    """Its rule S101 is B101, and so on. S607 is left out: bandit finds fewer of these."""
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--ignore-noqa", "--exit-zero"]
    rules = ["--select", "S", "--ignore", "S607", "--output-format", "json", "--extend-exclude", GENERATED]
    done = subprocess.run([*ruff, *rules, *PRODUCT], cwd=ROOT, capture_output=True, check=True)
    found = [
        Finding(
            each["code"].replace("S", "B"),
            Path(each["filename"]).relative_to(ROOT).as_posix(),
            each["location"]["row"],
            each["message"],
        )
        for each in json.loads(done.stdout)
    ]
    assert {"B101", "B108", "B311"} <= {finding.rule for finding in found}
    assert [line for line in judged(found, ALLOWED) if not line.startswith("allowed.toml: ")] == []


def test_quoted_hexadecimal_numbers_are_allowed_as_detect_secrets_finds_them() -> None:
    """Those with more than three bits a digit. As there, what counts up is no secret, nor is what
    stands behind the name of an id.
    """
    found = [
        Finding(HEX, name, number, "looks like a secret")
        for name in text_files()
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1)
        for quoted in re.finditer(r"""(["'])([0-9a-fA-F]{9,})\1""", line)
        if bits(quoted[2]) > 3
        and quoted[2].lower() not in "0123456789abcdef"
        and not re.search(r"(^(id|myid|userid)|_id)s?[^a-z0-9]", line[: quoted.start(2)], re.IGNORECASE)
    ]
    assert judged(found, [entry for entry in ALLOWED if entry["rule"] == HEX]) == []


def bits(digits: str) -> float:
    """Of one digit; decimal numbers count less, as detect-secrets has it."""
    shares = [count / len(digits) for count in collections.Counter(digits).values()]
    return -sum(share * math.log2(share) for share in shares) - digits.isdecimal() * 1.2 / math.log2(len(digits))


def test_scanners_are_pinned() -> None:
    lines = (Path(ROOT) / "constraints-security.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {"bandit", "detect-secrets", "pip_audit"} <= pinned.keys()
