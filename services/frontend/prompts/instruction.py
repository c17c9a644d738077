"""An instruction: how to speak, in words that the model reads and does not speak (instruct2 of the
reference).
"""

from cosyserve.errors import FailedPrecondition, InvalidRequest
from services.frontend.analysis.prepared_text import require_known_controls
from services.frontend.tokenizers.placeholders import END_OF_PROMPT
from services.frontend.tokenizers.tokenizer import Tokenizer
from services.frontend.voices.system_part import SystemPart
from services.frontend.voices.voice import MOST_PROMPT_TEXT_IDS

LONGEST_INSTRUCTION = 500


def instruction_ids(instruction: str, tokenizer: Tokenizer, system: SystemPart | None = None) -> list[int]:
    """Text token ids of an instruction, ending with that of `<|endofprompt|>`; at most 2048.
    system: of a model that has one; the ids then begin with it, whether or not the instruction
    does.

    Surrounding blanks are ignored. The text is not normalised, and known control tokens other than
    one `<|endofprompt|>` at its end are plain text. Raises InvalidRequest when it does not have 1
    to 500 characters, names a control token that the model lacks, or nothing in it can be read, and
    FailedPrecondition when the model does not support instructions. Source: compatibility
    specifications of CosyVoice2, sections 2.1, 2.3 and 2.4, and CosyVoice3, section 2.2; there the
    caller has to write the end token and the system part.
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
    require_known_controls("instruction", written, tokenizer)
    text = written.removesuffix(END_OF_PROMPT).strip()
    ids = tokenizer.encode(text if system is None else system.before(text))
    if not text or not ids:
        raise InvalidRequest(f"instruction holds nothing that this model can read before {END_OF_PROMPT}")
    if len(ids) >= MOST_PROMPT_TEXT_IDS:
        raise InvalidRequest(f"instruction comes to {len(ids) + 1} token ids, allowed at most {MOST_PROMPT_TEXT_IDS}")
    return [*ids, end]
