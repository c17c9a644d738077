"""A pass of the flow beside decode steps of one row."""
import os, sys, time, statistics
sys.argv=['x']
import torch
from pathlib import Path
if "COSYSERVE_CACHE_DIR" in os.environ:
    from cosyserve.engines.kernel_cache import keep_kernels
    try: (os.environ.setdefault('TRITON_CACHE_DIR','/tmp/cc/kernels'))
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
kinds={}
for g,r,u in ((5,64,2),(4,64,2),(3,64,2),(2,64,1),(5,72,2),(4,72,2),(3,96,2),(5,96,2)): kinds[f'{g} stages, {r} registers, {u} under way']=dict(stages=g,registers=r,under_way=u)
kinds['5 stages, 64, 2, nap 100']=dict(extra=['-DNAP=100'])
kinds['5 stages, 96, 2, nap 50']=dict(registers=96,extra=['-DNAP=50'])
keep=[]
for name,k in kinds.items():
    o=one(m,mem,st,**k); d=DecodeStep(m,mem,1); d.rows.fill_(1); d.logits=o.logits; keep.append((o,d))
    steps[name]=captured(lambda:(o.launch(),d.decide())); say(name)
say('steps')
with torch.inference_mode():
    flow=flow_filled(published().tensors(),64,(1,)); units=spread(1,4); flow.run(units); say('flow', f"{flow.capture((Way.SHORT,)):.1f} s"); work=lambda: flow.run(units)
    F=torch.cuda.Stream(dev)
    def alone(g):
        reset(mem,300); return f'{us(g.replay):.0f}'
    def measure(g, n=15):
        passes,each=[],[]
        for _ in range(n):
            reset(mem,300); torch.cuda.synchronize()
            a,b,c,e=(torch.cuda.Event(enable_timing=True) for _ in range(4))
            if g is not None:
                with torch.cuda.stream(P):
                    for _ in range(6): g.replay()
                    c.record()
                    for _ in range(50): g.replay()
                    e.record()
            with torch.cuda.stream(F):
                a.record(); work(); work(); b.record()
            torch.cuda.synchronize(); passes.append(a.elapsed_time(b)/2)
            if g is not None: each.append(c.elapsed_time(e)/50)
        return f"pass {statistics.median(passes):.2f} ms (most {max(passes):.2f})" + (f", step {1000*statistics.median(each):.0f} us (most {1000*max(each):.0f})" if each else "")
    say('flow alone', measure(None))
    for name,g in steps.items(): say(name, 'alone', alone(g), measure(g))
    say('flow alone', measure(None))
