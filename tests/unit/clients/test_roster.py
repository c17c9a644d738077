"""Examples and roster: the same versions, each run or with the reason why it never was."""

import re
from pathlib import Path

from tools.clients.roster import CLIENTS, EXAMPLES, ROOT

FOLDER = ROOT / "examples"
README = (FOLDER / "README.md").read_text(encoding="utf-8")
RUN_OTHERWISE = {"livekit_agent.py": "tests/clients/livekit_openai.py", "browser.html": "tests/browser"}


def examples() -> list[Path]:
    return [path for path in sorted(FOLDER.iterdir()) if path.name != "README.md"]


def test_each_example_is_listed_and_is_run_or_says_why_not() -> None:
    assert set(re.findall(r"^\| \[(\S+)\]\(\1\)", README, re.MULTILINE)) == {path.name for path in examples()}
    run = {script.name for script in EXAMPLES} | RUN_OTHERWISE.keys()
    for path in examples():
        head = "\n".join(path.read_text(encoding="utf-8").splitlines()[:12])
        assert ("Never run" in head) == (path.name not in run), path
        assert path.name not in run or re.search(r"Run by|runs its", head), path


def test_examples_name_the_versions_of_the_roster() -> None:
    packages = {
        package for script in (*CLIENTS, *EXAMPLES) if script.environment for package in script.environment.packages
    }
    pinned = {re.sub(r"\[.*\]", "", package) for package in packages}
    for path in examples():
        for found in re.findall(r"[\w-]+(?:\[[\w,-]+\])?(?:==|@)\d[\w.]*", path.read_text(encoding="utf-8")):
            assert re.sub(r"\[.*\]", "", found) in pinned, (path, found)


def test_every_script_is_in_the_roster() -> None:
    scripts = {path for path in (ROOT / "tests" / "clients").rglob("*") if path.suffix in (".py", ".mjs")}
    shared = {"calls.py", "decoders.py", "guarded.py"}
    assert {path.name for path in scripts} - shared <= {script.name for script in CLIENTS}
