"""An Euler step in clusters against the kernels that are served, and its time."""

import sys

import torch

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import RandomVoice, apart, filled, published, spread


def patched(estimator, options=()):
    from services.token2wav.gpu.clusters import step as module

    if options:
        estimator._clustered = module.ClusteredStep(
            module.compile_kernels(module.source(), (9, 0), options), estimator._levels,
            (estimator._down_end, estimator._up_end, estimator._final), estimator._launch.chained)
    return estimator._clustered


NAMES = {
    1: "x",
    2: "qkv",
    3: "kv",
    4: "scores",
    5: "pv",
    6: "out",
    7: "got1",
    8: "norm",
    9: "x2",
    10: "widen",
    11: "gelu",
    12: "narrow",
    13: "got2",
    14: "norm2",
}


def stamps(step_of):
    s = step_of.stamps.cpu().reshape(-1, 32)[:56].double()
    inner = [l for l in range(5, 52) if l % 4 in (1, 2)]
    print(
        "  layer: " + " ".join(f"{n} {int((s[inner, i] - s[inner, i - 1]).median())}" for i, n in NAMES.items()),
        "| all",
        int((s[[l + 1 for l in inner], 0] - s[inner, 0]).median()),
    )
    first = [l for l in range(8, 48, 4)]
    print(
        "  resnet: "
        + " ".join(
            f"{n} {int((s[first, i] - s[first, i - 1]).median())}"
            for n, i in (("acts", 17), ("conv1", 18), ("sums", 19), ("norm", 20), ("conv2", 21), ("rest", 22))
        ),
        "| all",
        int((s[first, 0] - s[first, 16]).median()),
        "| step",
        int(s[55, 14] - s[0, 16]),
        flush=True,
    )


def detail(paged, est, someone, pages, mels, variants=((),)):
    def one(on):
        paged.pool.fill_(float("nan"))
        est._y.fill_(float("nan"))
        unit = someone.unit(0, pages)
        paged._table.fill([unit], 1)
        paged._front(paged._table, paged.pool, paged.layout, 1)
        est.prepare(paged._front.mu, paged._noise, paged._table, paged.pool, paged.layout, 1)
        est.step(0, paged._table, paged.pool, paged.layout, 1, apart=on)
        torch.cuda.synchronize()
        return est._y[:100].clone(), paged.pool[pages[0] * paged.layout.elements :][: paged.layout.elements].float()

    layout = paged.layout
    y, page = one(False)
    for variant in variants:
        if variant:
            patched(est, variant)
        got, mine = one(True)
        print(variant, end="")
        for name, (at, size) in layout.sites.items():
            a, b = (p[layout.tail(0, name) :][:size] for p in (mine, page))
            if name in ("in", "h0", "skip", "x1", "h1", "x2", "x13", "h13", "end", "final"):
                print(f" {name} {apart(a, b)[0]:.2e}", end="")
        for layer in (0, 1, 4, 55):
            a, b = (p[layout.attention(0, layer) :][: 2 * 2 * 50 * 512] for p in (mine, page))
            print(f" kv {layer} {apart(a, b)[0]:.2e}", end="")
        print(f"  y {apart(got, y)[0]:.2e}", flush=True)
        a, b = (p[layout.tail(0, "h0") :][:1024] for p in (mine, page))
        print(
            "   h0",
            a[:8].tolist(),
            b[:8].tolist(),
            ((a - b).abs() > 0.05).float().reshape(4, 8, 32).mean(2).tolist(),
            flush=True,
        )


def compare(options):
    weights = published().tensors()
    flow = published().readable(weights)
    someone = RandomVoice(flow, 87, 44, 2)
    wanted = someone.reference(flow)
    paged = published().paged_flow(weights, pages=16, dtype=torch.bfloat16, buckets=(1, 2, 4, 8), clusters=True)
    est = paged._estimator
    step_of = patched(est, options)
    print("clusters at once", step_of.clusters, flush=True)
    pages = [3, 5, 2, 9, 7, 1][: someone.blocks]

    def mels(on):
        est.clustered_units = 4 * on
        paged.pool.fill_(float("nan"))
        return [paged.run([someone.unit(at, pages)])[0].clone() for at in range(someone.blocks)]

    detail(paged, est, someone, pages, mels)
    for on in (False, True):
        got = mels(on)
        joined = torch.cat([m[: len(w)] for m, w in zip(got, wanted, strict=True)])
        print(f"clusters {on}: mel against float32 {apart(joined, torch.cat(wanted))}", flush=True)
    again = mels(True)
    print("repeatable", all(bool((a == b).all()) for a, b in zip(got, again)), flush=True)
    if "-DSTAMPS" in options:
        stamps(step_of)


VARIANTS = ((), ("-DAHEAD=65536",), ("-DAHEAD=262144",), ("-DLATE",), ("-DLATE", "-DAHEAD=131072"))


def times(options):
    weights = published().tensors()
    paged = filled(weights, 64, (1, 2), clusters=True)
    est = paged._estimator
    from services.token2wav.gpu.paged_flow.flow import Way

    paged.capture((Way.SHORT,))
    for way, variants in ((Way.SHORT, ((),)), (Way.APART, VARIANTS)):
        for variant in variants:
            if way is Way.APART:
                patched(est, variant)
                paged.capture((way,))
            line = []
            for batch in (1, 2):
                for prefix in (0, 3, 7):
                    paged.run(spread(batch, prefix))
                    line.append(f"{timed(paged._graphs[batch, way].replay, 10):.2f}")
            print(way.name, *variant, "1 unit, 1 4 8 blocks, 2 units:", *line, flush=True)


def one():
    weights = published().tensors()
    someone = RandomVoice(published().readable(weights), 87, 44, 2)
    paged = published().paged_flow(weights, pages=16, dtype=torch.bfloat16, buckets=(1, 2), clusters=True)
    detail(paged, paged._estimator, someone, [3, 5, 2, 9, 7, 1], None)


if __name__ == "__main__":
    options = [w for w in sys.argv[1:] if w.startswith("-")]
    from bench.gpu import kernels

    kernels.keep()
    with torch.inference_mode():
        if "one" in sys.argv:
            one()
        if "compare" in sys.argv:
            compare(options)
        if "times" in sys.argv:
            times(options)
