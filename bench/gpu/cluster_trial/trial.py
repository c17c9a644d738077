"""One launch of several transformer layers against PyTorch in float32, and its time."""

import ctypes
import subprocess
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from bench.gpu.cluster_trial.packing import packed

HERE = Path(__file__).parent
DEV = torch.device("cuda")


class Arguments(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "weights", "biases", "pool", "own", "pages", "counts", "valid")]
    _fields_ += [(name, ctypes.c_longlong) for name in ("page", "offset", "layer_stride", "tail")]
    _fields_ += [("layers", ctypes.c_int), ("table", ctypes.c_int), ("stamps", ctypes.c_void_p)]


def library(*options):
    out = f"/tmp/trial{''.join(options)}.so"
    subprocess.run(
        ["nvcc", "-O3", "-gencode=arch=compute_90a,code=sm_90a", *options, "-Xcompiler", "-fPIC", "-shared", "-o", out,
         str(HERE / "launch.cu")],
        check=True, stderr=subprocess.DEVNULL,
    )
    return ctypes.CDLL(out)


class Case:
    def __init__(self, units, pages, layers, valid=50, seed=0):
        g = torch.Generator(device=DEV).manual_seed(seed)
        r = lambda *s: torch.randn(*s, generator=g, device=DEV)
        self.units, self.layers, self.count = units, layers, pages
        self.qkv, self.out = r(layers, 1536, 256) / 16, r(layers, 256, 512) / 23
        self.qkv[:, :512] *= 0.125 * 2
        self.widen, self.narrow = r(layers, 1024, 256) / 16, r(layers, 256, 1024) / 32
        self.biases = r(layers, 3072) * 0.1
        self.half = [t.bfloat16() for t in (self.qkv, self.out, self.widen, self.narrow)]
        self.weights = torch.stack([packed(*(t[i] for t in self.half)) for i in range(layers)])
        self.stride = 2 * 2 * 50 * 512
        self.offset, self.page = 640, 640 + self.stride * layers + 2 * 2 * 256
        self.tail = 640 + self.stride * layers
        self.pool0 = (r((units * pages + 1), self.page) * 0.7).bfloat16()
        self.pool = self.pool0.clone()
        perm = torch.randperm(units * pages, generator=torch.Generator().manual_seed(1)).add(1).reshape(units, pages)
        self.tables = torch.zeros(units, 300, dtype=torch.int32, device=DEV)
        self.tables[:, :pages] = perm.int().to(DEV)
        self.perm = perm
        self.own = perm[:, -1].int().to(DEV).contiguous()
        self.counts = torch.full((units,), pages, dtype=torch.int32, device=DEV)
        self.valid = torch.full((units,), valid, dtype=torch.int32, device=DEV)
        self.x0 = r(units, 2, 50, 256)
        self.x = self.x0.clone()
        self.stamps = torch.zeros(64 * 16, dtype=torch.int64, device=DEV)

    def arguments(self):
        a = Arguments()
        for name, t in dict(x=self.x, weights=self.weights, biases=self.biases, pool=self.pool, own=self.own, pages=self.tables,
                            counts=self.counts, valid=self.valid, stamps=self.stamps).items():
            setattr(a, name, t.data_ptr())
        a.page, a.offset, a.layer_stride, a.tail, a.layers, a.table = self.page, self.offset, self.stride, self.tail, self.layers, 300
        return a

    def wanted(self):
        x = self.x0.clone()
        keys = []
        for l in range(self.layers):
            qkv, out, widen, narrow = (t[l].float() for t in self.half)
            b = self.biases[l]
            h = F.layer_norm(x, (256,)) @ qkv.T + b[:1536]
            q, k, v = h.split(512, -1)
            keys.append(torch.stack([k, v], 2))
            split = lambda t: t.reshape(self.units, 2, -1, 8, 64).transpose(2, 3)
            pool = self.pool0.float()
            ks, vs = [], []
            for page in range(self.count - 1):
                kv = pool[self.perm[:, page].to(DEV), self.offset + l * self.stride:][:, : self.stride].reshape(self.units, 2, 2, 50, 512)
                ks.append(kv[:, :, 0]), vs.append(kv[:, :, 1])
            n = int(self.valid[0])
            ks, vs = torch.cat([*ks, k[:, :, :n]], 2), torch.cat([*vs, v[:, :, :n]], 2)
            a = torch.softmax(split(q) @ split(ks).transpose(-1, -2), -1) @ split(vs)
            x = x + a.transpose(2, 3).reshape(self.units, 2, 50, 512) @ out.T + b[1536:1792]
            x = x + F.gelu(F.layer_norm(x, (256,)) @ widen.T + b[1792:2816]) @ narrow.T + b[2816:]
        return x, torch.stack(keys, 1)  # [units, layers, 2, 50, 2, 512]


def apart(a, b):
    return float((a - b).norm() / b.norm())


def check(lib, units, pages, layers, valid=50):
    case = Case(units, pages, layers, valid)
    a = case.arguments()
    code = lib.launch(ctypes.byref(a), units, 0, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    torch.cuda.synchronize()
    x, keys = case.wanted()
    got = case.pool[case.own.long(), case.offset : case.offset + layers * case.stride].float().reshape(units, layers, 2, 2, 50, 512)
    tail = case.pool[case.own.long(), case.tail :].float().reshape(units, 2, 2, 256)
    others = case.pool.clone()
    others[case.own.long()] = case.pool0[case.own.long()]
    kept = bool((others == case.pool0).all())
    print(f"units {units} pages {pages} layers {layers} valid {valid}: code {code} change {apart(case.x - case.x0, x - case.x0):.2e} "
          f"keys {apart(got[:, :, :, 0], keys[:, :, :, 0]):.2e} values {apart(got[:, :, :, 1], keys[:, :, :, 1]):.2e} "
          f"tail {apart(tail, x[:, :, 48:]):.2e} others kept {kept} finite {bool(torch.isfinite(case.x).all())}", flush=True)
    first = case.x.clone()
    same = True
    for _ in range(20):
        case.x.copy_(case.x0)
        lib.launch(ctypes.byref(a), units, 0, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        torch.cuda.synchronize()
        same &= bool((case.x == first).all())
    print(f"   repeatable {same}", flush=True)


def timed(lib, units, pages, layers=4, launches=14):
    """us a layer in a graph of launches that follow each other."""
    case = Case(units, pages, layers * launches)
    parts = []
    for at in range(launches):
        a = case.arguments()
        a.layers = layers
        a.weights += at * layers * 8 * 131072 * 2
        a.biases += at * layers * 3072 * 4
        a.offset += at * layers * case.stride
        a.tail = -1
        parts.append(a)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for a in parts:
            lib.launch(ctypes.byref(a), units, 1, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    spent = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        case.x.copy_(case.x0)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        spent.append(begin.elapsed_time(end))
    spent.sort()
    print(f"time units {units} pages {pages} layers a launch {layers}: {1000 * spent[6] / layers / launches:.2f} us a layer", flush=True)


def stamped(lib, units, pages, layers=8):
    case = Case(units, pages, layers)
    a = case.arguments()
    for _ in range(3):
        lib.launch(ctypes.byref(a), units, 0, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        torch.cuda.synchronize()
    s = case.stamps.cpu().reshape(-1, 16)
    names = "x qkv kv scores pv out got1 norm x widen gelu narrow got2 norm".split()
    gaps = (s[2 : layers - 1, 1:15] - s[2 : layers - 1, :14]).float().median(0).values
    print(f"clocks units {units} pages {pages}: " + " ".join(f"{n} {int(v)}" for n, v in zip(names, gaps)) +
          f" | layer {int((s[3:layers - 1, 0] - s[2:layers - 2, 0]).float().median())}", flush=True)


if __name__ == "__main__":
    what = sys.argv[1:]
    torch.manual_seed(0)
    lib = library(*(w for w in what if w.startswith("-")))
    print("active clusters", lib.launch(None, 0, 0, None), flush=True)
    if "check" in what:
        for units, pages, layers, valid in ((1, 1, 1, 50), (1, 4, 1, 50), (1, 4, 4, 50), (2, 3, 5, 22), (4, 8, 4, 2)):
            check(lib, units, pages, layers, valid)
    if "small" in what:
        check(lib, 1, 4, 2, 50)
    if "time" in what:
        for units, pages in ((1, 1), (1, 4), (1, 8), (2, 4), (4, 4)):
            timed(lib, units, pages)
        timed(lib, 1, 4, 1, 56), timed(lib, 1, 4, 56, 1)
    if "stamps" in what:
        stamped(lib, 1, 1), stamped(lib, 1, 4), stamped(lib, 4, 4)
