"""The script of a sentence whose text is known: prompt, then one speech token at a time.

    [start] [prompt text, text] [task] [prompt speech] -> tokens, each fed back

Length: 2 to 20 tokens per text id unless the model directory sets other bounds, and never more than
4096. Source: compatibility specification sections 3.2 and 3.3.
"""

from cosyserve.spec import FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.generation.config import PUBLISHED_LENGTHS, LengthBounds
from services.llm.generation.request import FinishReason, Profile, Prompt
from services.llm.generation.sampling import Chooser
from services.llm.generation.script import START, TASK, Rules, Script, speech_inputs, text_inputs


class WholeText(Script):
    """The `Script` of a sentence whose text is known.

    Profile `upstream` masks only the end id, and only before the shortest length, so that one of
    the two reserved ids can end a sentence early, as in the reference. Profile `continuous` always
    masks the reserved ids.

    text: at least 1 id below the text vocabulary.
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
        super().__init__(chooser, replay)
        self._inputs = [START, *text_inputs(prompt.text_ids + text), TASK, *speech_inputs(prompt.speech_tokens)]
        # In profile `upstream` none, so that the prompt and the text run in one pass.
        self.of_voice = 0 if profile is Profile.UPSTREAM else 1 + len(prompt.text_ids)
        self._shortest, self._longest = lengths.shortest(len(text)), lengths.longest(len(text))
        self._always_masked = () if profile is Profile.UPSTREAM else (RESERVED_SPEECH, FILL)

    @property
    def ready(self) -> int:
        """As `Script.ready`: the prompt and the text at first, then one token at a time."""
        return 0 if self.finish else len(self._inputs)

    @property
    def rules(self) -> Rules:
        return Rules(
            chooser=self._chooser,
            masked=self._always_masked,
            shortest=self._shortest,
            longest=self._longest,
            decisions=len(self.decisions),
            replay=self._replay,
        )

    def accept(self, token: int) -> int | None:
        """As `Script.accept`; never raises InternalFault."""
        if token >= SPEECH_VOCABULARY:
            self.finish = FinishReason.END_OF_SPEECH
            return None
        self.decisions.append(token)
        return self._speak(token, self._longest)
