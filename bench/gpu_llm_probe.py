"""First look at the decode step on a GPU: is it right, and where does the time go. `python -m bench.gpu_llm_probe PART [TUNED.json]`."""

import json
import multiprocessing
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.nn.functional as F

from bench.gpu_llm_tuning import KINDS, filled, graph_of, microseconds, model_on
from bench.real_size import PUBLISHED_LLM, llm_tensors, smaller
from services.llm.engine.cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.packing import pack
from services.llm.gpu.prefill import CHUNK, PrefillStep, Stretch
from services.llm.gpu.state import Column
from services.llm.gpu.tuning import Blocks, Tuning, tuning
from services.llm.sampling import RepetitionAwareChooser, SeededDraw, mask
from services.llm.script import Input, Table, speech_inputs

CUDA = torch.device("cuda")


def ceilings() -> None:
    source = torch.randn(1 << 30, device=CUDA)
    target = torch.empty_like(source)
    graph = graph_of(lambda: target.copy_(source))
    print(f"copy: {2 * source.numel() * 4 / microseconds(graph, 10) / 1e6:.2f} TB/s read and written")
    small, out = source[: 1 << 24], target[: 1 << 24]
    del small, out
    reading = graph_of(lambda: source.sum())
    print(f"sum (read only): {source.numel() * 4 / microseconds(reading, 10) / 1e6:.2f} TB/s")
    a, b = (torch.randn(8192, 8192, device=CUDA, dtype=torch.bfloat16) for _ in range(2))
    product = graph_of(lambda: a @ b)
    print(f"bf16 product 8192^3: {2 * 8192**3 / microseconds(product, 10) / 1e6:.0f} TFLOP/s")


def correctness(number_type: str, pdl: int) -> None:
    """Decode and prefill against the readable model on the same device in float32."""
    torch.backends.cuda.matmul.allow_tf32 = False
    config = smaller(PUBLISHED_LLM, text_vocabulary=1000)
    plain = SpeechTokenModel.build(config, llm_tensors(config, CUDA), CUDA)
    generator = torch.Generator().manual_seed(3)
    lengths = [301, 64, 5, 130, 700, 17, 1, 255]
    prompts = [[Input(Table.TEXT, i) for i in torch.randint(0, 1000, (n,), generator=generator).tolist()] for n in lengths]
    dtype, allowed = (torch.float32, 2e-3) if number_type == "float32" else (torch.bfloat16, 0.5)
    packed = pack(plain, dtype, 2048)
    if True:
        for batch in (1, 2, 8, 32, 128):
            if True:
                memory = Memory.reserve(packed, pages=1024, slots=128, positions=2048)
                memory.cache.fill_(float("nan"))
                prefill = PrefillStep(packed, memory)
                step = DecodeStep(packed, memory, batch, replace(tuning(batch, exact=dtype == torch.float32), pdl=pdl))
                rows = min(batch, len(lengths))
                caches = []
                page_of = {}
                for row in range(rows):
                    slot, prompt = row + 1, prompts[row]
                    page_of[slot] = list(range(1 + 20 * row, 21 + 20 * row))
                    memory.pages[slot, :20] = torch.tensor(page_of[slot], dtype=torch.int32)
                    inputs = [packed.starts[item.table] + item.row for item in prompt]
                    for at in range(0, len(inputs) - 1, CHUNK):
                        prefill.load([Stretch(slot, at, inputs[at : min(at + CHUNK, len(inputs) - 1)], page_of[slot])])
                        prefill.launch()
                    told = torch.zeros(16, dtype=torch.int32)
                    told[Column.LENGTH], told[Column.INPUT], told[Column.ACTIVE], told[Column.LONGEST] = len(inputs) - 1, inputs[-1], 1, 9999
                    told[Column.CAPACITY], told[Column.FLAGS], told[Column.FILL_AT], told[Column.SEED_LOW] = 1280, 6, -1, 40 + row
                    told[Column.SHORTEST] = 3
                    memory.state[slot] = told.to(CUDA)
                    cache = SequenceCache.reserve(config, 800, CUDA)
                    hidden = plain.forward(plain.embed(prompt), cache)
                    caches.append((cache, hidden[-1:]))
                    step.rows[row] = slot
                worst, same, total, choices = 0.0, 0, 0, 0
                made: list[list[int]] = [[] for _ in range(rows)]
                for number in range(6):
                    step.launch()
                    decisions, logits = step.decisions.tolist(), step.logits.cpu()
                    for row in range(rows):
                        cache, hidden = caches[row]
                        scores = plain.log_probabilities(hidden)[0]
                        found = torch.log_softmax(logits[row].to(CUDA), -1)
                        error = (found - scores).abs().max().item()
                        worst = max(worst, error if error == error else float("inf"))
                        barred = [6562, 6563] + ([6561] if number < 3 else [])
                        chooser = RepetitionAwareChooser(config.sampling, SeededDraw(40 + row, 0))
                        choices += chooser.choose(mask(logits[row].numpy(), barred), made[row]) == decisions[row]
                        same += chooser.choose(mask(scores.cpu().numpy(), barred), made[row]) == decisions[row]
                        total += 1
                        made[row].append(decisions[row])
                        caches[row] = (cache, plain.forward(plain.embed(speech_inputs([decisions[row]])), cache)[-1:])
                verdict = "ok" if worst < allowed and choices == total else "WRONG"
                print(
                    f"{verdict}: {str(dtype)[6:]} batch {batch} pdl {pdl}: worst log-probability error {worst:.2e}, same choice from the same "
                    f"logits {choices}/{total}, same as float32 model {same}/{total}, std of scores {scores.std().item():.2f}",
                    flush=True,
                )


def tuned(path: Path) -> dict[int, Tuning]:
    found = json.loads(path.read_text())
    best: dict[int, Tuning] = {}
    for batch in sorted({item["batch"] for item in found}):
        chosen = tuning(batch)
        for kind in KINDS:
            items = [item for item in found if item["batch"] == batch and item["kind"] == kind]
            if items:
                item = min(items, key=lambda item: item["us"])
                chosen = replace(chosen, **{kind: Blocks(*(item[key] for key in ("rows", "columns", "depth", "warps", "stages", "split")))})
        for item in found:
            if item["batch"] == batch and item["kind"] == "attend":
                chosen = replace(chosen, **{key: item[key] for key in ("splits", "attend_warps", "attend_stages")})
        best[batch] = chosen
    return best


def step_variants(path: Path, batch: int) -> list[tuple[str, Tuning]]:
    best = tuned(path) if path.exists() else {}
    found = [(f"default, pdl {mode}", replace(tuning(batch), pdl=mode)) for mode in ((0, 1, 2) if batch == 1 else (2, 3))]
    like = {2: (1, 8), 4: (1, 8), 16: (8, 32)}.get(batch, (batch,))
    for source in like:
        if source in best:
            found += [(f"as {source}, pdl {mode}", replace(best[source], pdl=mode)) for mode in ((0, 1, 2) if source == 1 else (0, 2, 3))]
    if batch in (1, 8) and batch in best:
        found += [(f"splits {splits}", replace(best[batch], pdl=2, splits=splits, attend_warps=2)) for splits in (4, 8)]
    return found


def compile_steps(path: Path, batch: int) -> None:
    model = model_on(CUDA, 1, torch.bfloat16)
    memory = filled(model, 300)
    for name, blocks in step_variants(path, batch):
        try:
            DecodeStep(model, memory, batch, blocks).launch()
            torch.cuda.synchronize()
        except Exception as error:
            print(f"batch {batch} {name}: {type(error).__name__} {str(error)[:300]}", flush=True)


def steps(path: Path) -> None:
    """Whole steps: default and tuned blocks, with and without programmatic launch."""
    batches = (1, 2, 4, 8, 16, 32, 64, 128)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=compile_steps, args=(path, batch)) for batch in batches]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    model = model_on(CUDA, PUBLISHED_LLM.layers, torch.bfloat16)
    print(f"a step reads {model.step_bytes / 1e6:.1f} MB of weights, {model.step_flops / 1e9:.3f} GFLOP a row")
    totals: dict[tuple[int, str], float] = {}
    for length in (300, 900):
        memory = filled(model, length)
        for batch in batches:
            for name, blocks in step_variants(path, batch):
                try:
                    step = DecodeStep(model, memory, batch, blocks)
                    step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
                    taken = microseconds(graph_of(step.launch), 20)
                    cached = 2 * 2 * 64 * 2 * 24 * length * batch
                    floor = (model.step_bytes + cached) / 4.3e6
                    totals[batch, name] = totals.get((batch, name), 0.0) + taken * (2 if length == 300 else 1)
                    print(f"length {length:4} batch {batch:3} {name:16}: {taken:7.1f} us, floor {floor:.0f} us at 4.3 TB/s", flush=True)
                    for column, value in ((Column.LENGTH, length), (Column.DECISIONS, 0), (Column.TOKENS, 0)):
                        memory.state[1:, column] = value
                except Exception as error:
                    print(f"length {length} batch {batch} {name}: {type(error).__name__} {str(error)[:200]}", flush=True)
                    torch.cuda.synchronize()
    table = {}
    for batch in batches:
        total, name = min((total, name) for (of, name), total in totals.items() if of == batch)
        blocks = dict(step_variants(path, batch))[name]
        print(f"batch {batch:3}: {name}, {total / 3:.0f} us; {blocks}")
        table[batch] = asdict(blocks)
    path.with_name("table.json").write_text(json.dumps(table, indent=1))


def profile(path: Path) -> None:
    model = model_on(CUDA, PUBLISHED_LLM.layers, torch.bfloat16)
    memory = filled(model, 300)
    best = tuned(path) if path.exists() else {}
    prefill = PrefillStep(model, memory)
    for batch in (1, 8, 64):
        for pdl in (0,):
            step = DecodeStep(model, memory, batch, replace(best.get(batch, tuning(batch)), pdl=pdl))
            step.rows.copy_(torch.arange(1, batch + 1, dtype=torch.int32))
            graph = graph_of(step.launch)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                for _ in range(5):
                    graph.replay()
                torch.cuda.synchronize()
            print(f"batch {batch}")
            print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=12, max_name_column_width=50))
    prefill.load([Stretch(1, 0, [5] * 256, list(range(1, 17)))])
    graph = graph_of(prefill.launch)
    print(f"prefill of 256: graph {microseconds(graph):.0f} us")
    for count, length in ((1, 256), (1, 96), (2, 128), (16, 16)):
        prefill.load([Stretch(slot + 1, 0, [5] * length, list(range(1 + 16 * slot, 17 + 16 * slot))) for slot in range(count)])
        print(f"  {count} of {length}: {microseconds(graph):.0f} us")
    prefill.load([Stretch(1, 1024 - 256, [5] * 256, list(range(1, 17)))])
    print(f"  last 256 of 1024: {microseconds(graph):.0f} us")
    started = time.perf_counter()
    prefill.launch()
    torch.cuda.synchronize()
    print(f"  without a graph {1e3 * (time.perf_counter() - started):.1f} ms")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=14, max_name_column_width=60))


def prefill_variants(path: Path) -> None:
    """Warps and stages of the attention of a chunk."""
    from services.llm.gpu.kernels import attention

    model = model_on(CUDA, PUBLISHED_LLM.layers, torch.bfloat16)
    memory = filled(model, 300)
    plain = attention.attend_tile

    class Varied:
        def __init__(self, warps: int, stages: int) -> None:
            self.warps, self.stages = warps, stages

        def __getitem__(self, grid: tuple[int, int]) -> object:
            return lambda *a, **k: plain[grid](*a, **(k | {"num_warps": self.warps, "num_stages": self.stages}))

    for warps in (4, 8):
        for stages in (1, 2, 3):
            attention.attend_tile = Varied(warps, stages)
            prefill = PrefillStep(model, memory)
            graph = graph_of(prefill.launch)
            line = []
            for begin, count in ((0, 96), (0, 256), (768, 256)):
                prefill.load([Stretch(1, begin, [5] * count, list(range(1, 17)))])
                line.append(f"{count} from {begin}: {microseconds(graph):.0f} us")
            print(f"attend_tile warps {warps} stages {stages}: " + ", ".join(line), flush=True)


def libraries() -> None:
    """The four products by the library, in a graph over all layers, by number of rows."""
    model = model_on(CUDA, PUBLISHED_LLM.layers, torch.bfloat16)
    for batch in (1, 8, 16, 32, 64, 128, 256):
        line = []
        for name in ("qkv", "out", "gate_up", "down"):
            weights = [getattr(layer, name) for layer in model.layers]
            x = torch.randn(batch, weights[0].shape[1], device=CUDA, dtype=torch.bfloat16)
            graph = graph_of(lambda w=weights, x=x: [F.linear(x, one) for one in w])  # type: ignore[misc]
            line.append(f"{name} {microseconds(graph) / len(weights):.2f}")
        x = torch.randn(batch, 896, device=CUDA)
        head = graph_of(lambda x=x: F.linear(x, model.head))  # type: ignore[misc]
        line.append(f"head(fp32) {microseconds(head):.2f}")
        print(f"library, {batch:3} rows, us: " + ", ".join(line), flush=True)


def sampler_speed() -> None:
    """The two kernels of the sampler alone, and the draw of random rows against the readable sampler."""
    model = model_on(CUDA, 1, torch.bfloat16)
    for steep in (0.5, 3.0, 8.0):
        memory = filled(model, 10)
        memory.state[1:, Column.SHORTEST] = 0
        step = DecodeStep(model, memory, 64)
        step.rows.copy_(torch.arange(1, 65, dtype=torch.int32))
        step.score = lambda: None  # type: ignore[method-assign]
        step.layer = lambda _: None  # type: ignore[method-assign]
        made: list[list[int]] = [[] for _ in range(64)]
        same = 0
        for turn in range(12):
            step.logits.copy_(steep * torch.randn(step.logits.shape))
            if turn % 2:
                step.logits[:, :3000] = step.logits[:, :1]  # ties
            step.launch()
            decisions, logits = step.decisions.tolist(), step.logits.cpu().numpy()
            for row in range(64):
                chooser = RepetitionAwareChooser(model.config.sampling, SeededDraw(row, 0))
                want = chooser.choose(mask(logits[row], [6562, 6563]), made[row])
                same += want == decisions[row]
                made[row].append(decisions[row])
            memory.state[1:, Column.ACTIVE] = 1
        print(f"sampler, steepness {steep}: {same}/{12 * 64} choices as the readable sampler")
        graph = graph_of(step.launch)
        print(f"  enter, scan and choose, 64 rows: {microseconds(graph):.1f} us")



PARTS = {"ceilings": ceilings, "libraries": libraries, "sampler": sampler_speed}
if __name__ == "__main__":
    if sys.argv[1] in PARTS:
        PARTS[sys.argv[1]]()
    elif sys.argv[1] == "correctness":
        correctness(sys.argv[2], int(sys.argv[3]))
    else:
        {"steps": steps, "profile": profile, "prefill": prefill_variants}[sys.argv[1]](Path(sys.argv[2]))
