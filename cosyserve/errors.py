"""Every way a request or a start can fail.

    CosyserveError
    ├── InvalidRequest      INVALID_ARGUMENT     a value of the caller: which, and what is allowed
    ├── NotFound            NOT_FOUND            no such voice
    ├── Unauthenticated     UNAUTHENTICATED      no API key, or one that is not valid
    ├── PermissionDenied    PERMISSION_DENIED    the caller may not call this method
    ├── AlreadyExists       ALREADY_EXISTS       a voice of that id exists
    ├── OutOfRange          OUT_OF_RANGE         a resume point after the end of the audio
    ├── FailedPrecondition  FAILED_PRECONDITION  another engine than the one that began the request,
    │   │                                        or the voice, model or peer lacks something
    │   └── Quarantined     FAILED_PRECONDITION  engines were lost with this request
    ├── Overloaded          RESOURCE_EXHAUSTED   full; carries a retry hint
    │   └── LimitReached    RESOURCE_EXHAUSTED   a limit of the caller's API key; names it
    ├── Unavailable         UNAVAILABLE          a peer is down or this service is draining
    │   ├── PeerLost        UNAVAILABLE          a peer was lost while it worked
    │   └── DeviceLost      UNAVAILABLE          the GPU of this service is lost
    ├── DeadlineExceeded    DEADLINE_EXCEEDED    a peer did not answer in time
    │   └── CallersDeadline DEADLINE_EXCEEDED    the caller's deadline has passed, or will, or
    │                                            its text stays away
    ├── CallerStalled       DEADLINE_EXCEEDED    the caller read or sent nothing in time;
    │                                            another replica would not help
    └── InternalFault       INTERNAL             our fault: an engine failed
        └── SpeechFault     INTERNAL             the result is not speech of the text; names a guard
            ├── Runaway       RUNAWAY            the sentence did not end
            ├── TooShort      TOO_SHORT          it ended at once
            ├── PromptSpoken  PROMPT_SPOKEN      the prompt was spoken instead
            ├── Silence       SILENCE            nothing can be heard
            ├── NonFinite     NON_FINITE         a network returned non-finite numbers
            ├── Absurd        ABSURD             finite numbers that cannot be speech
            ├── LeftOut       LEFT_OUT           a word of the text was not spoken
            └── Repeated      REPEATED           words were spoken twice
    ModelError              (start only)         the model directory is unusable; names the file
    SettingsError           (start only)         the environment is unusable; names the variable

A quoted value of the caller is cut at 256 characters in a message, and the message at 2,000: a
status travels in one block of headers, and gRPC replaces a status that does not fit by
RESOURCE_EXHAUSTED.

Code raises these; `cosyserve.rpc.interceptors` turns them into gRPC status. No error travels inside
an OK stream.
"""

import re

import grpc

LONGEST_QUOTED = 256
LONGEST_MESSAGE = 2_000
_QUOTED = re.compile(
    rf"(?P<mark>['\"])(?P<kept>(?:(?!(?P=mark))[^\\]|\\.){{{LONGEST_QUOTED}}})(?P<cut>(?:(?!(?P=mark))[^\\]|\\.)+)(?P=mark)",
    re.DOTALL,
)


class CosyserveError(Exception):
    """An error with a gRPC status; its text is shown to the caller."""

    code = grpc.StatusCode.UNKNOWN

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        # gRPC takes no subclass of str.
        self.message = str(_bounded(message))
        super().__init__(self.message)
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; sent as `google.rpc.RetryInfo`."""


def _bounded(message: str) -> str:
    """`message` with every quoted value cut at 256 characters, and itself at 2,000."""
    if len(message) <= LONGEST_QUOTED:
        return message
    message = _QUOTED.sub(
        lambda match: f"{match['mark']}{match['kept']}{match['mark']}… ({len(match['cut'])} characters more)", message
    )
    over = len(message) - LONGEST_MESSAGE
    return message if over <= 0 else f"{message[:LONGEST_MESSAGE]}… ({over} characters more)"


class InvalidRequest(CosyserveError):
    code = grpc.StatusCode.INVALID_ARGUMENT


class NotFound(CosyserveError):
    code = grpc.StatusCode.NOT_FOUND


class Unauthenticated(CosyserveError):
    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDenied(CosyserveError):
    code = grpc.StatusCode.PERMISSION_DENIED


class AlreadyExists(CosyserveError):
    code = grpc.StatusCode.ALREADY_EXISTS


class OutOfRange(CosyserveError):
    code = grpc.StatusCode.OUT_OF_RANGE


class FailedPrecondition(CosyserveError):
    code = grpc.StatusCode.FAILED_PRECONDITION


class Quarantined(FailedPrecondition):
    """The work is refused because engines were lost with it; `google.rpc.ErrorInfo` has the
    reason.
    """

    reason = "QUARANTINED"


class Overloaded(CosyserveError):
    """limit: which one refuses, as the metrics name it (`cosyserve.metrics.names.LIMITS`)."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED

    def __init__(self, message: str, *, retry_after: float | None = None, limit: str = "streams") -> None:
        super().__init__(message, retry_after=retry_after)
        self.limit = limit


class LimitReached(Overloaded):
    """A limit of the caller's API key; `google.rpc.ErrorInfo` has its reason, and which limit."""

    reason = "KEY_LIMIT"


class Unavailable(CosyserveError):
    code = grpc.StatusCode.UNAVAILABLE


class PeerLost(Unavailable):
    """A peer ended while it worked for us, without saying that it would."""


class DeviceLost(Unavailable):
    """The GPU is unusable until the process has ended; another replica can go on."""


class DeadlineExceeded(CosyserveError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class CallersDeadline(DeadlineExceeded):
    """No caller waits for the result any more, or none goes on with what it is made of;
    `google.rpc.ErrorInfo` has the reason, so that a peer that drops the work is not taken for one
    that stalls. queue: where the work waited, or `call` if it was running.
    """

    reason = "CALLERS_DEADLINE"

    def __init__(self, message: str, *, queue: str = "call", retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.queue = queue


class CallerStalled(CosyserveError):
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class InternalFault(CosyserveError):
    code = grpc.StatusCode.INTERNAL


class SpeechFault(InternalFault):
    """A guard detected that the result is not the requested speech; another seed may do better."""

    guard = ""
    """Reason in `google.rpc.ErrorInfo`: a value of Guard in synthesis.proto without its prefix."""


class Runaway(SpeechFault):
    guard = "RUNAWAY"


class TooShort(SpeechFault):
    guard = "TOO_SHORT"


class PromptSpoken(SpeechFault):
    guard = "PROMPT_SPOKEN"


class Silence(SpeechFault):
    guard = "SILENCE"


class NonFinite(SpeechFault):
    guard = "NON_FINITE"


class Absurd(SpeechFault):
    guard = "ABSURD"


class LeftOut(SpeechFault):
    guard = "LEFT_OUT"


class Repeated(SpeechFault):
    guard = "REPEATED"


SPEECH_FAULTS: dict[str, type[SpeechFault]] = {kind.guard: kind for kind in SpeechFault.__subclasses__()}


class ModelError(Exception):
    """The model directory is unusable; the message names the file and what is wrong with it."""


class SettingsError(Exception):
    """The environment is unusable; the message names the variable."""
