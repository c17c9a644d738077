"""`python -m bench.field.merge FILE ... [--markdown FILE] [--json FILE]`: parts that were measured
one at a time become one report. Parts of different machines, sources, models or conditions are
refused.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.field.figures import BUSY, LATE_MILLISECONDS, Interval, Row
from bench.field.measured import rows_of
from bench.parts.part import write
from bench.parts.provenance import Subject
from bench.reports.tables import table, titled

Content = Mapping[str, Any]
"""A part's file."""
_HEAD = (
    "load", "requests", "refused", "failed", "first byte p50, ms", "p95", "p99", "audible p50, ms", "p95", "p99",
    "underruns", "longest, ms", "audio s", "audio s/s", "at once", "client late p99, ms", "client core",
)  # fmt: skip
ANY_SAMPLE = "The first sample counts as audible: what random weights and fake engines make is no speech."
_SUBJECT = ("machine", "versions", "source")


def merged(parts: Sequence[Content]) -> dict[str, Any]:
    """All parts as one. Raises ValueError that names what differs between the first part and
    another, or a part that comes twice.
    """
    if not parts:
        raise ValueError("there is no part to merge")
    first, found = parts[0], dict[str, Content]()
    for part in parts:
        _same(first, part)
        if part["part"] in found:
            raise ValueError(f"the part {part['part']} is there twice")
        found[part["part"]] = part
    return {"subject": first["subject"], "conditions": first["conditions"], "parts": found}


def _same(first: Content, other: Content) -> None:
    conditions = tuple(dict.fromkeys([*first["conditions"], *other["conditions"]]))
    for kind, names in (("subject", _SUBJECT), ("conditions", conditions)):
        for name in names:
            one, two = first[kind].get(name), other[kind].get(name)
            if one != two:
                raise ValueError(f"{first['part']} and {other['part']} differ in {name}: {one} and {two}")


def text(whole: Mapping[str, Any]) -> list[str]:
    """The report in Markdown, of what `merged` returns."""
    conditions, parts = whole["conditions"], whole["parts"]
    rows = {name: rows_of(part) for name, part in parts.items()}
    every = [one for these in rows.values() for one in these]
    notes = [
        f"Model: {conditions['model']}. {conditions['requests']} requests a load at least, "
        f"{conditions['seconds']:g} s; in brackets the 95 % interval.",
        *([f"Computed on {conditions['device']}."] if conditions.get("device") else []),
        *_derived(parts),
        *([ANY_SAMPLE] if any(one.any_sample for one in every) else []),
        *sorted({line for part in parts.values() for line in part.get("engines", ())}),
    ]
    started = {name: part["start_seconds"] for name, part in parts.items() if part.get("start_seconds")}
    if started:
        notes.append(
            "Services ready after " + ", ".join(f"{each:.0f} s ({name})" for name, each in started.items()) + "."
        )
    notes += [f"{name}, {line}" for name, part in parts.items() for line in part.get("start_phases", ())]
    bound = [f"{name} {one.load}" for name, these in rows.items() for one in these if one.client_bound]
    if bound:
        notes.append(
            f"**The caller may be what was measured**: requests were sent more than {LATE_MILLISECONDS:g} ms late "
            f"(p99), or a calling process used more than {BUSY:.0%} of a core: {', '.join(bound)}."
        )
    notes += [
        f"{name} {one.load}: {one.inaudible} of {one.answered} answers never became audible; the percentiles of "
        "audible are of the others."
        for name, these in rows.items()
        for one in these
        if one.inaudible
    ]
    reported = {f"{name} {one.load}": one.spent for name, these in rows.items() for one in these if one.spent}
    hints = [f"{name} {one.load}: {_hinted(one)}" for name, these in rows.items() for one in these if one.refused]
    failures = sorted({why for one in every for why in one.reasons})
    sections = {
        f"{name}: {part['about']}": table(_HEAD, [_cells(one) for one in rows[name]]) for name, part in parts.items()
    }
    if reported:
        names = list(next(iter(reported.values())))
        sections["Milliseconds until the first sound, p50 / p95"] = table(
            ("load", *(name.replace("_", " ") for name in names)),
            [
                [load, *(f"{p50:.1f} / {p95:.1f}" for p50, p95 in (spent[name] for name in names))]
                for load, spent in reported.items()
            ],
        )
    lines = ["# The method of tts_bench", "", f"{Subject(**whole['subject'])}.", ""]
    return [
        *lines,
        *(f"* {note}" for note in notes),
        "",
        *titled(sections),
        *(f"* failed: {why}" for why in failures),
        *(f"* refused: {one}" for one in hints),
    ]


def _derived(parts: Mapping[str, Content]) -> list[str]:
    """Settings that the benchmark has chosen for the machine, and of which parts if not of all."""
    chosen: dict[str, list[str]] = {}
    for name, part in parts.items():
        settings = " ".join(f"{each}={value}" for each, value in sorted(part.get("derived_settings", {}).items()))
        chosen.setdefault(settings, []).append(name)
    of = {settings: "" if len(chosen) == 1 else f" ({', '.join(names)})" for settings, names in chosen.items()}
    return [f"Chosen for this machine: {settings}{parts_of_it}." for settings, parts_of_it in of.items() if settings]


def _hinted(one: Row) -> str:
    if not one.hints:
        return f"{one.refused}, without a hint"
    least, median, most = one.hints
    return f"{one.refused}, to come again after {median:.1f} s ({least:.1f}-{most:.1f})"


def _cells(one: Row) -> list[str | int | float]:
    def of(intervals: Mapping[str, Interval]) -> list[str]:
        shown = [intervals.get(f"p{percent}") for percent in (50, 95, 99)]
        return ["never" if each is None else f"{each[0]:.1f} ({each[1]:.1f}-{each[2]:.1f})" for each in shown]

    return [
        one.load,
        one.requests,
        one.refused,
        one.failed,
        *of(one.first),
        *of(one.audible),
        one.underruns,
        one.longest_dry,
        f"{one.mean_audio:.2f}",
        one.audio_per_second,
        one.at_once,
        f"{one.late:.2f}",
        f"{one.busy:.0%}",
    ]


def read(path: Path) -> Content:
    """A part's file. Raises ValueError for a file that is none."""
    content: Content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not {"part", "subject", "conditions", "rows"} <= content.keys():
        raise ValueError(f"{path} is no part of this benchmark")
    return content


def main(arguments: Sequence[str] | None = None) -> int:
    """2 when parts do not belong together."""
    options = argparse.ArgumentParser(
        prog="python -m bench.field.merge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("files", type=Path, nargs="+", metavar="FILE", help="of one part each")
    options.add_argument("--markdown", type=Path, metavar="FILE", help="the report (default: standard output)")
    options.add_argument("--json", type=Path, metavar="FILE", help="every figure")
    given = options.parse_args(arguments)
    try:
        whole = merged([read(path) for path in given.files])
    except (OSError, ValueError) as error:
        print(f"bench.field.merge: {error}", file=sys.stderr)
        return 2
    if given.json:
        write(given.json, whole)
    report = "\n".join(text(whole)) + "\n"
    if given.markdown:
        given.markdown.write_text(report, encoding="utf-8")
    else:
        print(report, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
