"""Where a sentence is cut: pure schedules, one per request.

Cuts lie on the grid of 25 tokens that starts at the first prompt token, because the flow's
attention masks do. A schedule says which stretch of generated tokens is spoken next, given how many
are there; it never decides what the samples are. Source: compatibility specification section 6.1.
"""

from dataclasses import dataclass

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS
from services.token2wav.inputs.request import Growth, Hops, Profile


@dataclass(frozen=True)
class Hop:
    """A stretch of generated tokens spoken in one go. Counts exclude the prompt.

    start, end: tokens spoken before it and after it. final: nothing follows, so there is no
    look-ahead.
    """

    index: int
    start: int
    end: int
    final: bool


@dataclass(frozen=True)
class Schedule:
    """The hops of one request.

    prompt_tokens: where on the grid the first generated token lies. least_first: fewest tokens in
    the first hop. lengths: tokens of the following hops, the last entry repeats; empty: the whole
    sentence is one hop.
    """

    prompt_tokens: int
    least_first: int
    lengths: tuple[int, ...]

    def next(self, last: Hop | None, have: int, finished: bool) -> Hop | None:
        """The hop after `last` that can be spoken with `have` generated tokens, None when more must
        arrive first.

        A hop is due when its end and the look-ahead are there; once the tokens have ended, what is
        left is the final hop.
        """
        index, start = (0, 0) if last is None else (last.index + 1, last.end)
        if self.lengths:
            end = start + self._length(index)
            if have >= end + LOOKAHEAD_TOKENS:
                return Hop(index, start, end, final=False)
        return Hop(index, start, have, final=True) if finished else None

    def needed(self, last: Hop | None) -> int:
        """Generated tokens with which the hop after `last` can be spoken though more will come;
        only where the sentence is cut.
        """
        index, start = (0, 0) if last is None else (last.index + 1, last.end)
        return start + self._length(index) + LOOKAHEAD_TOKENS

    def _length(self, index: int) -> int:
        if index == 0:
            to_border = -self.prompt_tokens % CHUNK_TOKENS
            return to_border + _round_up(max(self.least_first - to_border, 0))
        return self.lengths[min(index, len(self.lengths)) - 1]


def schedule(profile: Profile, prompt_tokens: int, hops: Hops) -> Schedule:
    """The schedule of a request.

    Continuous: the first hop ends at the first border with at least `first_hop_tokens` new tokens,
    later ones are 25 tokens or grow 25, 50, 100, ... Upstream: 25 and the way to the border, then
    50, 100, 100, ... Offline: one hop.
    """
    if profile is Profile.OFFLINE:
        return Schedule(prompt_tokens, 0, ())
    if profile is Profile.UPSTREAM:
        lengths = _lengths(hops.growth or Growth.EXPONENTIAL, hops.max_hop_tokens)
        return Schedule(prompt_tokens, max(hops.first_hop_tokens, CHUNK_TOKENS), lengths[1:] or lengths)
    return Schedule(prompt_tokens, hops.first_hop_tokens, _lengths(hops.growth or Growth.FIXED, hops.max_hop_tokens))


def next_border(position: int, end: int) -> int:
    """The end of the grid block that begins at or contains `position`, at most `end`. Both count
    from the first prompt token.
    """
    return min((position // CHUNK_TOKENS + 1) * CHUNK_TOKENS, end)


def last_border(prompt: int, tokens: int = 0) -> int:
    """Tokens up to the last border inside a prompt of `prompt` tokens whose look-ahead is known
    when `tokens` come after it.
    """
    return max(min(prompt, prompt + tokens - LOOKAHEAD_TOKENS), 0) // CHUNK_TOKENS * CHUNK_TOKENS


def grid_blocks(position: int, end: int) -> int:
    """Grid blocks that are worked on to get from `position` to `end`, at least one."""
    return max(-(-end // CHUNK_TOKENS) - position // CHUNK_TOKENS, 1)


def _lengths(growth: Growth, longest: int) -> tuple[int, ...]:
    """Hop lengths in whole blocks: 25 for ever, or doubling from 25 up to `longest`."""
    if growth is Growth.FIXED:
        return (CHUNK_TOKENS,)
    longest = longest // CHUNK_TOKENS * CHUNK_TOKENS
    lengths = [CHUNK_TOKENS]
    while lengths[-1] < longest:
        lengths.append(min(2 * lengths[-1], longest))
    return tuple(lengths)


def _round_up(tokens: int) -> int:
    return -(-tokens // CHUNK_TOKENS) * CHUNK_TOKENS
