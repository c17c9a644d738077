"""The form of log lines of every service: with the id of the trace in which they were written, so
that the lines of one request are found by it, and it by them.
"""

import logging

from cosyserve import telemetry

_FORMAT = "%(asctime)s %(levelname)s %(name)s%(trace)s: %(message)s"


class TracedFormatter(logging.Formatter):
    """`trace=` and 32 hexadecimal digits in front of the message, if there is a trace: that of the
    caller, too, where none is recorded here.
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging names it
        trace = telemetry.trace_id()
        record.trace = f" trace={trace}" if trace else ""
        return super().formatMessage(record)


def begin(level: str) -> None:
    """Log to stderr. level: name of a level of the logging module."""
    handler = logging.StreamHandler()
    handler.setFormatter(TracedFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
