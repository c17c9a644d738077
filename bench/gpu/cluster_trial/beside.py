"""A pass of the flow beside decode steps of one row, with and without clusters."""

import statistics
import time

import torch

from bench.gpu import kernels
from bench.gpu.llm.decode_steps import Column, DecodeStep, published_model
from bench.gpu.llm.decode_steps import filled as llm_filled
from bench.gpu.token2wav.random_models import filled, published, spread
from services.token2wav.gpu.paged_flow.flow import Way

began = time.time()


def say(*what):
    print(f"[{time.time() - began:.0f}]", *what, flush=True)


def captured(f, stream):
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        f()
    return graph


def main():
    kernels.keep()
    decoding, flowing = torch.cuda.Stream(priority=-1), torch.cuda.Stream()
    model = published_model()
    memory = llm_filled(model, 300)
    steps, kept = {}, []
    for rows in (1, 4):
        step = DecodeStep(model, memory, rows)
        step.rows.copy_(torch.arange(1, rows + 1, dtype=torch.int32))
        kept.append(step)
        steps[rows] = captured(step.launch, decoding)
    say("decode steps")
    weights = published().tensors()
    paged = filled(weights, 64, (1, 2), clusters=True)
    paged.capture((Way.SHORT, Way.APART))
    say("flow, clusters", paged.clustered_units)

    def reset():
        memory.state[1:, Column.LENGTH] = 300
        torch.cuda.synchronize()

    def measure(graph, work, n=15):
        passes, each = [], []
        for _ in range(n):
            reset()
            a, b, c, e = (torch.cuda.Event(enable_timing=True) for _ in range(4))
            if graph is not None:
                with torch.cuda.stream(decoding):
                    for _ in range(6):
                        graph.replay()
                    c.record()
                    for _ in range(36):
                        graph.replay()
                    e.record()
            if work is not None:
                with torch.cuda.stream(flowing):
                    a.record()
                    work(), work()
                    b.record()
            torch.cuda.synchronize()
            if work is not None:
                passes.append(a.elapsed_time(b) / 2)
            if graph is not None:
                each.append(c.elapsed_time(e) / 36)
        text = f"pass {statistics.median(passes):.2f} ms (most {max(passes):.2f})" if passes else ""
        return text + (f" step {1000 * statistics.median(each):.0f} us (most {1000 * max(each):.0f})" if each else "")

    for rows, graph in steps.items():
        say(rows, "rows alone", measure(graph, None))
    from bench.gpu.cluster_trial.step_trial import patched

    for variant in (None, (), ("-DLATE",)):
        way = Way.SHORT if variant is None else Way.APART
        if variant:
            patched(paged._estimator, variant)
            paged.capture((way,))
        for units, prefix in ((1, 3), (2, 3)):
            paged.run(spread(units, prefix))
            torch.cuda.synchronize()
            replay = paged._graphs[units, way].replay
            say(f"{units} units, {prefix + 1} blocks, {way.name} {variant}: alone", measure(None, replay))
            for rows, graph in steps.items():
                say(f"   beside {rows} rows:", measure(graph, replay))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
