import sys
sys.argv=['x']
import torch
exec(open('bench/gpu/one_trial/one.py').read().split("m=build(24)")[0])
m=build(24); st=stream(m,PROGRAMS); mem=filled(m,300)
for k in (dict(),dict(extra=['-DNO_RING','-DNO_POLL'])):
    o=one(m,mem,st,**k)
    for _ in range(3): o.launch()
    torch.cuda.synchronize()
