"""The system part that some generations need before every text: one sentence and the mark that ends
it (compatibility specification of CosyVoice3, section 2.2).
"""

from cosyserve.errors import ModelError
from cosyserve.generations.generation import Generation
from services.frontend.tokenizers.tokenizer import Tokenizer


class SystemPart:
    """The system part of one model. Raises ModelError when the generation needs its mark and the
    tokenizer has none.
    """

    def __init__(self, generation: Generation, tokenizer: Tokenizer) -> None:
        self.generation = generation
        self._written = generation.prompt.system + generation.prompt.end_mark
        self.ids: tuple[int, ...] = ()
        """Its text token ids, ending with that of the mark; empty for a model without one."""
        if not generation.prompt.required:
            return
        self._end = tokenizer.id_of(generation.prompt.end_mark)
        if self._end is None:
            raise ModelError(
                f"the tokenizer has no {generation.prompt.end_mark}, which {generation.title} needs before every text; "
                "expected is a byte-level tokenizer in CosyVoice-BlankEN"
            )
        self.ids = (*tokenizer.encode(generation.prompt.system), self._end)

    def before(self, instruction: str) -> str:
        """An instruction with the sentence of the system part before it, once."""
        system = self.generation.prompt.system
        return instruction if not system or instruction.startswith(system) else f"{system} {instruction}"

    def removed_from(self, text: str) -> str:
        """`text` without the system part that callers of the reference write at its beginning; it
        is not spoken, and the model gets it in any case.
        """
        start = text.lstrip()
        return start.removeprefix(self._written) if self.ids and start.startswith(self._written) else text

    def prefixed(self, transcript: tuple[int, ...]) -> tuple[int, ...]:
        """The ids of a transcript with the system part before them, once."""
        return transcript if not self.ids or self.is_in(transcript) else (*self.ids, *transcript)

    def is_in(self, transcript: tuple[int, ...]) -> bool:
        """Whether the ids have the mark that ends a system part."""
        return bool(self.ids) and self.ids[-1] in transcript
