"""A sentence on a third-party engine: its inputs, its decisions, and the hops that the reader has
not taken.
"""

from cosyserve.errors import InternalFault, NonFinite
from cosyserve.spec import END_OF_SPEECH, FILL, SPEECH_VOCABULARY
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import FinishReason, Grouping, Hop
from services.llm.generation.script import Input, Script, Table
from services.llm.hosted.extended_vocabulary import ExtendedVocabulary
from services.llm.hosted.run_sampler import BYPASSED, NOT_FINITE


class HostedSequence:
    """Used by one task."""

    def __init__(self, script: Script, grouping: Grouping) -> None:
        self.script = script
        self.hops: list[Hop] = []
        self.outbox = Outbox(self._deliver, grouping)
        self.fed: list[int] = []
        """Inputs so far, as ids of the extended vocabulary."""
        self.decisions: list[int] = []

    def _deliver(self, item: Hop | Exception) -> None:
        assert isinstance(item, Hop)  # noqa: S101
        self.hops.append(item)

    def take_hops(self) -> list[Hop]:
        """Remove and return the hops that are ready, in order."""
        ready, self.hops = self.hops, []
        return ready

    def feed(self, vocabulary: ExtendedVocabulary) -> None:
        """Append the inputs that the script wants to run next."""
        self.fed += [_extended(vocabulary, item) for item in self.script.take()]

    def accept(self, vocabulary: ExtendedVocabulary, extended: list[int]) -> bool:
        """Apply decisions of the engine, in order; True when the run is over. Raises NonFinite, and
        InternalFault for an id that is no decision.
        """
        for one in extended:
            token = vocabulary.speech_id(one)
            if token == NOT_FINITE:
                raise NonFinite(
                    f"the speech-token model produced non-finite log-probabilities at token {self.script.token_count}"
                )
            if token == BYPASSED:
                raise InternalFault("the speech-token engine sampled a token without its logits processor")
            if token >= SPEECH_VOCABULARY:
                self.settle(FILL if self.script.rules.fill_at is not None else END_OF_SPEECH)
                return True
            self.settle(token)
            if self.script.finish is not None:
                return True
            self.feed(vocabulary)
        return False

    def settle(self, token: int) -> None:
        """Pass a decision to the script, and the resulting token to the outbox."""
        tokens_before = self.script.token_count
        self.decisions.append(token)
        sent = self.script.accept(token)
        reason: FinishReason | None = self.script.finish
        if sent is not None:
            self.outbox.add(sent, last=reason is not None)
        elif self.script.token_count > tokens_before:
            self.outbox.replayed()
        if reason is not None:
            self.outbox.finish(reason, self.script.token_count)


def _extended(vocabulary: ExtendedVocabulary, item: Input) -> int:
    first = {Table.SPECIAL: vocabulary.start, Table.TEXT: 0, Table.SPEECH: vocabulary.text_ids}[item.table]
    return first + item.row
