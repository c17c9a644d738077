"""What a distribution needs, as installed in this environment: its requirements and theirs."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class NotInstalled(Exception):
    """A requirement that this environment does not hold."""


def closure(root: str) -> Mapping[str, frozenset[str]]:
    """By canonical name, the names that it requires here, for `root` such as
    "cosyserve-server[cpu]" and all below it. Raises NotInstalled.
    """
    wanted, seen = [Requirement(root)], dict[str, set[str]]()
    known: dict[str, set[str]] = {}
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        asked = {"", *requirement.extras}
        fresh = asked - known.get(name, set())
        if not fresh:
            continue
        known.setdefault(name, set()).update(fresh)
        needed = seen.setdefault(name, set())
        for each in _requirements(name):
            if any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in fresh):
                wanted.append(each)
                needed.add(canonicalize_name(each.name))
    return {name: frozenset(needed - {name}) for name, needed in seen.items()}


def _requirements(name: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in distribution(name).requires or []]
    except PackageNotFoundError as error:
        raise NotInstalled(f"{name} is not installed here; make setup installs what the services need") from error
