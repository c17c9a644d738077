"""An instruction: how to speak, in words that the model reads and does not speak (CosyVoice2's
instruct2).
"""

from cosyserve.errors import FailedPrecondition, InvalidRequest
from services.frontend.tokenizers.placeholders import END_OF_PROMPT
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voices.voice import MOST_PROMPT_TEXT_IDS

LONGEST_INSTRUCTION = 500


def instruction_ids(instruction: str, tokenizer: Tokenizer) -> list[int]:
    """Text token ids of an instruction, ending with that of `<|endofprompt|>`; at most 2048.

    Surrounding blanks are ignored. The text is not normalised, and control tokens other than one
    `<|endofprompt|>` at its end are plain text. Raises InvalidRequest when it does not have 1 to
    500 characters or nothing in it can be read, and FailedPrecondition when the model does not
    support instructions. Source: compatibility specification sections 2.1, 2.3 and 2.4; there the
    caller has to write the end token.
    """
    written = instruction.strip()
    if not 1 <= len(written) <= LONGEST_INSTRUCTION:
        raise InvalidRequest(
            f"instruction has {len(written)} characters besides the blanks around it, allowed 1 to "
            f"{LONGEST_INSTRUCTION}"
        )
    end = tokenizer.id_of(END_OF_PROMPT)
    if end is None:
        raise FailedPrecondition(
            f"this model follows no instructions: its tokenizer has no {END_OF_PROMPT}. Needed is a model that was "
            "trained on them, such as the published CosyVoice2-0.5B"
        )
    ids = tokenizer.encode(written.removesuffix(END_OF_PROMPT).strip())
    if not ids:
        raise InvalidRequest(f"instruction holds nothing that this model can read before {END_OF_PROMPT}")
    if len(ids) >= MOST_PROMPT_TEXT_IDS:
        raise InvalidRequest(f"instruction comes to {len(ids) + 1} token ids, allowed at most {MOST_PROMPT_TEXT_IDS}")
    return [*ids, end]
