"""Where the replicas of token2wav cut prompts at their start, which decides when a hop is due:
tokens are sent in messages of a hop. It changes no sample.
"""

from collections.abc import Collection

from cosyserve import spec
from cosyserve.engines.compatibility import Identity
from cosyserve.generations.prompt_cut import cut_for
from cosyserve.rpc.replicas import Replica
from services.orchestrator.speech.utterance import tokens_to_first_border


class PromptCut:
    """For what first hop each replica cuts prompts, as its latest answer says. During an update
    replicas may differ, and which of them speaks a sentence is decided when its first tokens come.
    """

    def __init__(self) -> None:
        self._said: dict[Replica, tuple[Identity, int]] = {}

    def says(self, replica: Replica, engine: Identity, first_hop_tokens: int) -> None:
        """A replica answered. first_hop_tokens: 0, its prompts are not cut. An answer that comes
        when the replica no longer serves says nothing: no later `changed` would take it away.
        """
        if replica.serving:
            self._said[replica] = engine, first_hop_tokens

    def changed(self, serving: Collection[Replica]) -> None:
        """Call when the health of token2wav may have changed. A replica that comes back counts as a
        new one.
        """
        self._said = {replica: said for replica, said in self._said.items() if replica in serving}

    def of(self, engine: Identity | None) -> set[int]:
        """First hops of the replicas that may speak a sentence. engine: the one that has begun its
        request, and speaks all of it; None: not known yet. Until one has said, prompts count as not
        cut.
        """
        known = {first_hop for identity, first_hop in self._said.values() if identity == engine}
        return known or {first_hop for _, first_hop in self._said.values()} or {0}

    @property
    def first_hop_tokens(self) -> int:
        """That of all replicas; 0 where they differ: a first sound then needs no more tokens than
        is said.
        """
        said = self.of(None)
        return said.pop() if len(said) == 1 else 0

    def first_hop(self, prompt_tokens: int, least: int, engine: Identity | None) -> int:
        """Tokens of the first hop behind a prompt, which the first message has, with look-ahead.
        least: as the request asks. Where replicas differ, the number with which the one that waits
        longest waits for the fewest tokens that it does not need.
        """
        hops = {
            tokens_to_first_border(prompt_tokens - cut_for(prompt_tokens, first_hop), least)
            for first_hop in self.of(engine)
        }
        return min(sorted(hops), key=lambda sent: max(_unneeded(sent, due) for due in hops))


def _unneeded(sent: int, due: int) -> int:
    """Tokens that come before a hop of `due` tokens has all of its own, and are not needed, if the
    first message has `sent` and each further one a chunk.
    """
    return sent - due if sent >= due else (sent - due) % spec.CHUNK_TOKENS
