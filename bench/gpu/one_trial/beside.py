"""A pass of the flow beside decode steps of one row."""
import os, sys, time, statistics
sys.argv=['x']
import torch
from pathlib import Path
if "COSYSERVE_CACHE_DIR" in os.environ:
    from cosyserve.engines.kernel_cache import keep_kernels
    try: keep_kernels(Path(os.environ["COSYSERVE_CACHE_DIR"]))
    except Exception as e: print("cache", e)
exec(open('bench/gpu/one_trial/one.py').read().split("if 'one' in sys.argv")[0])
from bench.gpu.token2wav.random_models import filled as flow_filled, published, spread
from services.token2wav.gpu.paged_flow.flow import Way
m=build(24); st=stream(m,PROGRAMS); mem=filled(m,300)
P=torch.cuda.Stream(dev,priority=-1)
def captured(f):
    with torch.cuda.stream(P): f()
    torch.cuda.synchronize(); g=torch.cuda.CUDAGraph()
    with torch.cuda.graph(g,stream=P): f()
    return g
steps={}
old=DecodeStep(m,mem,1); old.rows.fill_(1); steps['124 launches']=captured(old.launch)
kinds={'one launch, 5 stages, 64':dict(), 'one launch, 5 stages, 72':dict(registers=72),'one launch, 5 stages, 96':dict(registers=96),'one launch, 12 stages, 96':dict(stages=12,registers=96,under_way=1)}
keep=[]
for name,k in kinds.items():
    o=one(m,mem,st,**k); d=DecodeStep(m,mem,1); d.rows.fill_(1); d.logits=o.logits; keep.append((o,d))
    steps[name]=captured(lambda:(o.launch(),d.decide()))
say('steps')
with torch.inference_mode():
    flow=flow_filled(published().tensors(),64,(1,)); units=spread(1,4); flow.run(units); say('flow', f"{flow.capture((Way.SHORT,)):.1f} s"); work=lambda: flow.run(units)
    F=torch.cuda.Stream(dev)
    def measure(g, n=25):
        passes,each=[],[]
        for _ in range(n):
            reset(mem,300); torch.cuda.synchronize()
            a,b,c,e=(torch.cuda.Event(enable_timing=True) for _ in range(4))
            if g is not None:
                with torch.cuda.stream(P):
                    for _ in range(6): g.replay()
                    c.record()
                    for _ in range(30): g.replay()
                    e.record()
            with torch.cuda.stream(F):
                a.record(); work(); work(); b.record()
            torch.cuda.synchronize(); passes.append(a.elapsed_time(b)/2)
            if g is not None: each.append(c.elapsed_time(e)/30)
        return f"pass {statistics.median(passes):.2f} ms (most {max(passes):.2f})" + (f", step {1000*statistics.median(each):.0f} us (most {1000*max(each):.0f})" if each else "")
    say('flow alone', measure(None))
    for name,g in steps.items(): say(name, measure(g))
    say('flow alone', measure(None))
