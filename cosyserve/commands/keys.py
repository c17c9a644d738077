"""`cosyserve keys`: makes, lists and revokes the API keys of a keys file."""

import argparse
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cosyserve.commands.terminal.arguments import add_json, number, whole
from cosyserve.commands.terminal.output import WrongUsage, print_json, print_table
from cosyserve.errors import SettingsError
from cosyserve.host.starting.serving import KEYS
from cosyserve.keys import key_file
from cosyserve.keys.key_record import MOST_WEIGHT, PRIORITIES, KeyLimits, KeyRecord
from cosyserve.keys.secret import digest, new_secret

HELP = "make, list and revoke the API keys of callers"
_LIMITS = (
    ("concurrent", "N", "requests that speak at once"),
    ("requests_per_minute", "N", "requests a minute"),
    ("characters_per_minute", "N", "characters of text a minute"),
    ("characters_per_day", "N", "characters of text a day"),
)
_COLUMNS = ("ID", "TENANT", "WEIGHT", "PRIORITY", "EXPIRES", "LIMITS")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a key and print it, once: the file has only its hash")
    add.add_argument("id", metavar="ID", help="names the key in logs and figures")
    add.add_argument("--tenant", default="", metavar="NAME", help="whose voices it sees and makes (default: the id)")
    add.add_argument(
        "--weight",
        type=number(f"number above 0, at most {MOST_WEIGHT}", lambda value: 0 < value <= MOST_WEIGHT),
        default=1.0,
        metavar="N",
        help="its share of a full server, in proportion to the weights of other keys (default: %(default)g)",
    )
    add.add_argument("--priority", choices=PRIORITIES, default=PRIORITIES[0], help="(default: %(default)s)")
    for name, metavar, what in _LIMITS:
        add.add_argument(
            f"--{name.replace('_', '-')}", type=whole(1, 10**12), metavar=metavar, help=f"most {what} (default: all)"
        )
    add.add_argument("--days", type=whole(1, 36_500), metavar="N", help="after which it expires (default: never)")
    add.add_argument("--admin", action="store_true", help="may see and change the voices of every tenant")
    revoke = actions.add_parser("revoke", help="remove a key; servers refuse it within a second or two")
    revoke.add_argument("id", metavar="ID")
    listed = actions.add_parser("list", help="list the keys; none of them is shown")
    for action in (add, revoke, listed):
        action.add_argument(
            "--keys",
            type=Path,
            default=os.environ.get(KEYS) or None,
            metavar="FILE",
            help=f"the keys file (default: the variable {KEYS})",
        )
        add_json(action)


async def run(arguments: argparse.Namespace) -> int:
    if arguments.keys is None:
        raise WrongUsage(f"--keys names the keys file; without it, the variable {KEYS} does")
    return {"add": _add, "revoke": _revoke, "list": _list}[arguments.action](arguments)


def _add(arguments: argparse.Namespace) -> int:
    secret = new_secret()
    try:
        record = KeyRecord(
            arguments.id,
            digest(secret),
            arguments.tenant,
            arguments.weight,
            arguments.priority,
            KeyLimits(**{name: getattr(arguments, name) for name, _, _ in _LIMITS}),
            None if arguments.days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(arguments.days),
            arguments.admin,
        )
    except ValueError as error:
        raise WrongUsage(str(error)) from error

    def with_it(records: Sequence[KeyRecord]) -> Sequence[KeyRecord]:
        if any(each.id == record.id for each in records):
            raise SettingsError(f"{arguments.keys} has a key {record.id!r} already; revoke it first")
        return [*records, record]

    key_file.change(arguments.keys, with_it)
    if arguments.json:
        print_json({"id": record.id, "tenant": record.tenant, "key": secret})
    else:
        print(secret)
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    def without_it(records: Sequence[KeyRecord]) -> Sequence[KeyRecord]:
        left = [each for each in records if each.id != arguments.id]
        if len(left) == len(records):
            raise SettingsError(f"{arguments.keys} has no key {arguments.id!r}")
        return left

    key_file.change(arguments.keys, without_it)
    if arguments.json:
        print_json({"revoked": arguments.id})
    else:
        print(f"{arguments.id}: revoked")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    records = key_file.read(arguments.keys)
    if arguments.json:
        shown = [{name: value for name, value in each.as_dict().items() if name != "sha256"} for each in records]
        print_json({"keys": shown})
        return 0
    print_table([_COLUMNS, *map(_cells, records)])
    return 0


def _cells(record: KeyRecord) -> tuple[str, ...]:
    limits = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in vars(record.limits).items() if value)
    expires = record.expires.isoformat() if record.expires else "-"
    tenant = record.tenant + (" (admin)" if record.admin else "")
    return record.id, tenant, f"{record.weight:g}", record.priority, expires, limits or "-"
