"""`python -m tools.chart check --checkov FILE`: every set of values through helm, Kubernetes'
schemas, those of custom resources, and checkov; the examples, too. `python -m tools.chart
kustomize` writes the Kustomize base. Status 1 and one line for each fault, 2 where a tool is
missing.

The check of custom resources is checked itself: each of their fields is misspelt in turn, which has
to be noticed.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosyserve.errors import SettingsError
from tools.chart import custom_resources, known_kinds, kustomize, policies
from tools.chart.crd_schemas import has_schema
from tools.chart.rendering import ROOT, SETS, ChartError, examples, lint, manifests, rendered


def check(checkov: Path) -> Iterator[str]:
    """Each fault in one line. Raises ChartError, SettingsError."""
    texts = {}
    for values in SETS:
        lint(values)
        texts[values.stem] = rendered(values)
    documents = {name: manifests(text) for name, text in texts.items()}
    documents |= {str(path.relative_to(ROOT)): each for path, each in examples().items()}
    seen: set[str] = set()
    for name, each in documents.items():
        for fault in (*known_kinds.faults(each), *custom_resources.faults(each), *policies.skips_without_reason(each)):
            yield f"{name}: {fault}"
        for document in filter(has_schema, each):
            if document["kind"] not in seen:
                seen.add(document["kind"])
                for field in custom_resources.unnoticed(document):
                    yield f"{name}: {document['kind']}: no check notices that {field} is misspelt"
    yield from policies.failed(checkov, texts)
    yield from (f"{kustomize.BASE.relative_to(ROOT)}/{name}: make kustomize" for name in kustomize.outdated())
    counted = sum(map(len, documents.values()))
    print(f"{len(SETS)} sets of values and {len(examples())} examples, {counted} manifests; custom: {sorted(seen)}")


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools.chart", description="Check the chart, or write the Kustomize base.")
    steps = parser.add_subparsers(dest="step", required=True, metavar="STEP")
    steps.add_parser("check", help="all checks").add_argument("--checkov", type=Path, required=True, metavar="FILE")
    steps.add_parser("kustomize", help="write k8s/kustomize/base")
    options = parser.parse_args(given)
    try:
        if options.step == "kustomize":
            kustomize.write_base()
            return 0
        faults = list(check(options.checkov))
    except ChartError as error:
        faults = [str(error)]
    except (SettingsError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
