"""`python -m recipes.demo_voice.tokenizer.label WORK`: every utterance as codes, and which of its
symbols each code stands for.

Writes into the tokenizer's folder, in the order and with the offsets of `Features.first`: codes.npy
int16 [tokens], place.npy int16 [tokens], the index among the utterance's text ids ('^' and its
phonemes) of the symbol spoken at that token or -1 between sounds, and aligned.npy bool
[utterances], false where the speech is too short for its phones.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from recipes.demo_voice.features import LOG_MEL_PER_TOKEN
from recipes.demo_voice.tokenizer.evaluate import exact
from recipes.demo_voice.tokenizer.examples import Examples
from recipes.demo_voice.tokenizer.label import align
from recipes.demo_voice.tokenizer.trained import ALIGNED, CODES, PLACES, TrainedTokenizer
from recipes.demo_voice.training import speech

_BATCH_TOKENS = 48_000


@torch.no_grad()
def label(tokenizer: TrainedTokenizer, examples: Examples, folder: Path) -> dict[str, int]:
    """Write the three files; returns how many tokens and utterances there are and how many of the
    latter could not be aligned.
    """
    device, features = examples.device, examples.features
    total = sum(features.tokens)
    spoken = torch.zeros(total, dtype=torch.int16, device=device)
    places = torch.full((total,), -1, dtype=torch.int16, device=device)
    aligned = np.zeros(len(features.tokens), dtype=bool)
    symbols = [examples.phones.places(each.phonemes) for each in examples.speech.utterances]
    everyone = [member for member, target in enumerate(examples.targets) if target]
    batched = speech.by_length(everyone, features.tokens, _BATCH_TOKENS, np.random.default_rng(0))
    with exact():
        for chosen in tqdm(batched, desc="codes and alignment", unit="batch", mininterval=5.0):
            batch = examples.batch(chosen)
            ids = tokenizer.codes_of_speech(batch.log_mel, LOG_MEL_PER_TOKEN * batch.lengths)
            targets, exists = align(
                tokenizer.read_codes(ids, batch.lengths), batch.lengths, batch.targets, batch.counts
            )
            most = batch.targets.shape[1]
            rows = [symbols[member] + [-1] * (most - len(symbols[member])) for member in chosen]
            table = torch.tensor(rows, dtype=torch.int16, device=device)
            at_symbol = torch.where(targets >= 0, table.gather(1, targets.clamp(min=0)), -1)
            columns = torch.arange(ids.shape[1], device=device)[None]
            within = columns < batch.lengths[:, None]
            first = torch.tensor([features.first[member] for member in chosen], device=device)
            where = (first[:, None] + columns)[within]
            spoken[where] = ids[within].to(torch.int16)
            places[where] = at_symbol[within].to(torch.int16)
            aligned[chosen] = exists.cpu().numpy()
    np.save(folder / CODES, spoken.cpu().numpy())
    np.save(folder / PLACES, places.cpu().numpy())
    np.save(folder / ALIGNED, aligned)
    return {"tokens": total, "utterances": len(aligned), "not_aligned": int((~aligned).sum())}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m recipes.demo_voice.tokenizer.label", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("work", type=Path, help="work folder with speech/, features/ and a trained tokenizer")
    parser.add_argument("--name", default="tokenizer", help="folder of the tokenizer within the work folder")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    folder = options.work / options.name
    result = label(TrainedTokenizer.read(folder, device), Examples(options.work, device), folder)
    tqdm.write(str(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
