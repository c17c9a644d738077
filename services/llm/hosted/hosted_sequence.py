"""A sentence on a third-party engine: its inputs, its decisions, and the hops that the reader has
not taken.
"""

from cosyserve.errors import InternalFault
from cosyserve.spec import END_OF_SPEECH, FILL, SPEECH_VOCABULARY
from services.llm.engine.sequence import Outbox, non_finite
from services.llm.generation.request import Grouping, Hop
from services.llm.generation.script import Script, Table
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

    def feed(self, vocabulary: ExtendedVocabulary) -> int:
        """Append the inputs that the script wants to run next; returns how many."""
        first = {Table.SPECIAL: vocabulary.start, Table.TEXT: 0, Table.SPEECH: vocabulary.text_ids}
        inputs = [first[item.table] + item.row for item in self.script.take()]
        self.fed += inputs
        return len(inputs)

    def accept(self, vocabulary: ExtendedVocabulary, extended: list[int]) -> bool:
        """Apply decisions of the engine, in order; True when the run is over. Raises NonFinite, and
        InternalFault for an id that is no decision.
        """
        for one in extended:
            token = vocabulary.speech_id(one)
            if token == NOT_FINITE:
                raise non_finite(self.script)
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
        self.decisions.append(token)
        self.outbox.decided(self.script, lambda: self.script.accept(token))
        if self.script.finish is not None:
            self.outbox.finish(self.script.finish, self.script.token_count)
