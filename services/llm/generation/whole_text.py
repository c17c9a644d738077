"""The script of a sentence whose text is known: prompt, then one speech token at a time.

    [start] [prompt text, text] [task] [prompt speech] -> tokens, each fed back

Length: 2 to 20 tokens per text id unless the model directory sets other bounds, and never more than
4096. Source: compatibility specification sections 3.2 and 3.3.
"""

from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import Chooser, Scores, mask
from services.llm.generation.script import START, TASK, Input, Rules, speech_inputs, text_inputs


class WholeText:
    """The `Script` of a sentence whose text is known.

    Profile `upstream` masks only the end id, and only before the shortest length, so that one of
    the two reserved ids can end a sentence early, as in the reference. Profile `continuous` always
    masks the reserved ids.

    text: at least 1 id below the text vocabulary. replay: tokens that are fed instead of drawn, and
    not sent.
    """

    def __init__(
        self,
        prompt: Prompt,
        text: tuple[int, ...],
        profile: Profile,
        chooser: Chooser,
        replay: tuple[int, ...] = (),
        lengths: LengthBounds = PUBLISHED_LENGTHS,
    ) -> None:
        self._inputs = [START, *text_inputs(prompt.text_ids + text), TASK, *speech_inputs(prompt.speech_tokens)]
        self._of_voice = 0 if profile is Profile.UPSTREAM else 1 + len(prompt.text_ids)
        self._shortest, self._longest = lengths.shortest(len(text)), lengths.longest(len(text))
        self._always_masked = [] if profile is Profile.UPSTREAM else [RESERVED_SPEECH, FILL]
        self._chooser, self._replay = chooser, replay
        self._tokens: list[int] = []
        self.finish: FinishReason | None = None

    @property
    def token_count(self) -> int:
        """As `Script.token_count`."""
        return len(self._tokens)

    @property
    def ready(self) -> int:
        """As `Script.ready`: the prompt and the text at first, then one token at a time."""
        return 0 if self.finish else len(self._inputs)

    @property
    def of_voice(self) -> int:
        """As `Script.of_voice`: the start and the prompt's text. In profile `upstream` none, so
        that it runs in one pass.
        """
        return self._of_voice

    def take(self) -> list[Input]:
        """As `Script.take`."""
        return self._inputs

    def decide(self, scores: Scores) -> int | None:
        """As `Script.decide`; never raises InternalFault."""
        step = len(self._tokens)
        return self.accept(self._replay[step] if step < len(self._replay) else self._choose(scores))

    @property
    def rules(self) -> Rules:
        """As `Script.rules`."""
        return Rules(
            chooser=self._chooser,
            masked=tuple(self._always_masked),
            shortest=self._shortest,
            longest=self._longest,
            decisions=len(self._tokens),
            replay=self._replay,
        )

    def accept(self, token: int) -> int | None:
        """As `Script.accept`."""
        replayed = len(self._tokens) < len(self._replay)
        if token >= SPEECH_VOCABULARY:
            self.finish = FinishReason.END_OF_SPEECH
            return None
        self._tokens.append(token)
        self._inputs = speech_inputs([token])
        if len(self._tokens) >= self._longest:
            self.finish = FinishReason.LENGTH
        return None if replayed else token

    def _choose(self, scores: Scores) -> int:
        too_short = [END_OF_SPEECH] if len(self._tokens) < self._shortest else []
        return self._chooser.choose(mask(scores, self._always_masked + too_short), self._tokens)
