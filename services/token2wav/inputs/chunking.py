"""Where a sentence is cut into hops: a pure schedule for each request.

Cuts lie on the grid of 25 tokens that starts at the first prompt token, because the flow's
attention masks do; or, for a flow that takes the prompt as one block, on the grid that starts
behind it. A schedule determines which range of generated tokens is decoded next, given how
many exist; it never changes the samples. Source: compatibility specification section 6.1.

Trimming the start of the prompt moves the grid, so that its first border follows soon after the
prompt: earlier first audio without approximation. Blocks are counted from the first prompt token,
so the first hop is 25 - P mod 25 tokens long. It gives audio only if it is longer than what the
vocoder holds back, ten tokens of CosyVoice2 and two of CosyVoice3 (docs/streaming.md). Up to 24
tokens at the start of the prompt, less than a second, determine that by chance. The flow does not
see the trimmed tokens, and every later frame starts from different noise. The samples are therefore
those of a voice that was recorded with the shorter prompt: different, but neither better nor worse.
"""

from dataclasses import dataclass

from cosyserve.errors import SettingsError
from cosyserve.generations.prompt_cut import cut_for
from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.inputs.request import Growth, Hops, Profile, Voice


@dataclass(frozen=True)
class Hop:
    """A range of generated tokens that is decoded as one chunk. Counts exclude the prompt.

    start, end: tokens decoded before and after it. final: last hop of the sentence, so there is no
    look-ahead.
    """

    index: int
    start: int
    end: int
    final: bool


@dataclass(frozen=True)
class Schedule:
    """The hops of one request.

    prompt_tokens: tokens in front of the first generated one. least_first: minimum number of
    tokens in the first hop. lengths: tokens of the following hops, the last entry repeats; empty:
    the whole sentence is one hop. whole_prompt: the grid starts behind the prompt.
    """

    prompt_tokens: int
    least_first: int
    lengths: tuple[int, ...]
    whole_prompt: bool = False

    def next(self, last: Hop | None, have: int, finished: bool) -> Hop | None:
        """The hop after `last` that can be decoded with `have` generated tokens; None if more
        tokens must arrive first.

        A hop is due when all tokens up to its end and its look-ahead exist. Once the token stream
        has ended, the remaining tokens are the final hop.
        """
        index, start = (0, 0) if last is None else (last.index + 1, last.end)
        if self.lengths:
            end = start + self._length(index)
            if have >= end + LOOKAHEAD_TOKENS:
                return Hop(index, start, end, final=False)
        return Hop(index, start, have, final=True) if finished else None

    def needed(self, last: Hop | None) -> int:
        """Generated tokens that are needed to decode the hop after `last` while the sentence is
        still open. Only for sentences that are cut into hops.
        """
        index, start = (0, 0) if last is None else (last.index + 1, last.end)
        return start + self._length(index) + LOOKAHEAD_TOKENS

    def blocks(self, position: int, end: int) -> int:
        """Grid blocks that are computed to get from `position` to `end`, at least one; a prompt as
        one block counts as many as it is long.
        """
        if not self.whole_prompt:
            return grid_blocks(position, end)
        prompt = -(-max(min(end, self.prompt_tokens) - position, 0) // CHUNK_TOKENS)
        if end <= self.prompt_tokens:
            return max(prompt, 1)
        return prompt + grid_blocks(max(position - self.prompt_tokens, 0), end - self.prompt_tokens)

    def _length(self, index: int) -> int:
        if index == 0:
            to_border = 0 if self.whole_prompt else -self.prompt_tokens % CHUNK_TOKENS
            blocks = -(-max(self.least_first - to_border, 0) // CHUNK_TOKENS)
            return to_border + CHUNK_TOKENS * blocks
        return self.lengths[min(index, len(self.lengths)) - 1]


def schedule(profile: Profile, prompt_tokens: int, hops: Hops, *, whole_prompt: bool = False) -> Schedule:
    """The schedule of a request.

    Continuous: the first hop ends at the first grid border with at least `first_hop_tokens` new
    tokens; later hops have 25 tokens, or 25, 50, 100, ... Upstream: 25 tokens plus the distance to
    the border, then 50, 100, 100, ... Offline: one hop. whole_prompt: the flow takes the prompt as
    one block; its reference has hops of 25 tokens.
    """
    if profile is Profile.OFFLINE:
        return Schedule(prompt_tokens, 0, ())
    if profile is Profile.UPSTREAM:
        lengths = _lengths(hops.growth or (Growth.FIXED if whole_prompt else Growth.EXPONENTIAL), hops.max_hop_tokens)
        later = lengths[1:] or lengths
        return Schedule(prompt_tokens, max(hops.first_hop_tokens, CHUNK_TOKENS), later, whole_prompt)
    lengths = _lengths(hops.growth or Growth.FIXED, hops.max_hop_tokens)
    return Schedule(prompt_tokens, hops.first_hop_tokens, lengths, whole_prompt)


@dataclass(frozen=True)
class Grid:
    """Where the blocks of a stream end, counted from the first prompt token: every 25 tokens, or,
    with `whole_prompt`, behind the prompt and every 25 tokens after it.
    """

    prompt: int
    whole_prompt: bool = False

    def next_border(self, position: int, end: int) -> int:
        """End of the block that begins at or contains `position`, at most `end`."""
        if not self.whole_prompt:
            return next_border(position, end)
        if position < self.prompt:
            return min(self.prompt, end)
        return self.prompt + next_border(position - self.prompt, end - self.prompt)

    def last_border(self, tokens: int = 0) -> int:
        """The last border inside the prompt whose look-ahead is known when `tokens` generated
        tokens follow it. That of a prompt as one block wraps round, so it is always known.
        """
        return self.prompt if self.whole_prompt else last_border(self.prompt, tokens)

    def frames_to_border(self) -> int:
        """Mel frames from the end of the prompt to the next border, 0 to 49."""
        return 0 if self.whole_prompt else MEL_FRAMES_PER_TOKEN * (-self.prompt % CHUNK_TOKENS)

    def lookahead(self, end: int) -> slice:
        """Which tokens the block up to `end` sees behind it, as far as they exist. A prompt as one
        block sees its own first ones.
        """
        if self.whole_prompt and end == self.prompt:
            return slice(0, min(self.prompt, LOOKAHEAD_TOKENS))
        return slice(end, end + LOOKAHEAD_TOKENS)


def next_border(position: int, end: int) -> int:
    """End of the grid block that begins at or contains `position`, at most `end`. Both count from
    the first prompt token.
    """
    return min((position // CHUNK_TOKENS + 1) * CHUNK_TOKENS, end)


def last_border(prompt: int, tokens: int = 0) -> int:
    """Position of the last grid border inside a prompt of `prompt` tokens whose look-ahead is known
    when `tokens` generated tokens follow the prompt.
    """
    return max(min(prompt, prompt + tokens - LOOKAHEAD_TOKENS), 0) // CHUNK_TOKENS * CHUNK_TOKENS


def grid_blocks(position: int, end: int) -> int:
    """Number of grid blocks that are computed to get from `position` to `end`, at least one."""
    return max(-(-end // CHUNK_TOKENS) - position // CHUNK_TOKENS, 1)


def _lengths(growth: Growth, longest: int) -> tuple[int, ...]:
    """Hop lengths in whole blocks: always 25, or doubling from 25 up to `longest`."""
    if growth is Growth.FIXED:
        return (CHUNK_TOKENS,)
    longest = longest // CHUNK_TOKENS * CHUNK_TOKENS
    lengths = [CHUNK_TOKENS]
    while lengths[-1] < longest:
        lengths.append(min(2 * lengths[-1], longest))
    return tuple(lengths)


def check_first_hop(tokens: int, hold_back_tokens: int) -> None:
    """Raise SettingsError unless `tokens` is 0 (prompts stay unchanged) or gives sound within one
    block: above what the vocoder holds back, and at most 25.
    """
    shortest = hold_back_tokens + 1
    if tokens and not shortest <= tokens <= CHUNK_TOKENS:
        raise SettingsError(
            f"first_hop_tokens is {tokens}; 0 leaves prompts as they are, else {shortest} to {CHUNK_TOKENS} is allowed"
        )


def trim_prompt(voice: Voice, first_hop: int) -> Voice:
    """The voice with its prompt trimmed for a first hop of `first_hop` tokens; 0 leaves it
    unchanged. A prompt that would become shorter than two seconds is not trimmed.
    """
    drop = cut_for(len(voice.tokens), first_hop)
    if not drop:
        return voice
    return Voice(voice.tokens[drop:], voice.mel[MEL_FRAMES_PER_TOKEN * drop :], voice.embedding, voice.key)
