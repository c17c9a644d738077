"""What the scans leave out: each finding by rule and file, with a reason, and nothing else."""

import tomllib
from pathlib import Path

from tools.security.__main__ import ROOT, Finding, judged

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


def test_scanners_are_pinned() -> None:
    lines = (Path(ROOT) / "constraints-security.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {"bandit", "detect-secrets", "pip_audit"} <= pinned.keys()
