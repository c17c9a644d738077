import sys, time, os
from dataclasses import replace
import torch, statistics
T0=time.time()
def say(*a): print(f"[{time.time()-T0:5.1f}]", *a, flush=True)
from bench.generations.random_weights import llm_tensors
from bench.gpu.llm import decode_steps as B
from bench.gpu.timing import timed
from bench.real_size import PUBLISHED_LLM
from services.llm.engine.model import SpeechTokenModel
from services.llm.gpu.decode import DecodeStep, Memory
from services.llm.gpu.packing import pack
from services.llm.gpu.slots import Column
from services.llm.gpu.one_launch import OneLaunch
from services.llm.gpu.streams import stream
import functools, services.llm.gpu.one_launch as OL
_compile=functools.lru_cache(None)(lambda a,b,c: OL_compile(a,b,c)); OL_compile=OL.compile_kernels
OL.compile_kernels=lambda a,b,c=(): _compile(a,b,tuple(c))
torch.backends.cuda.matmul.allow_tf32 = False
dev=torch.device("cuda")
PROGRAMS=torch.cuda.get_device_properties(0).multi_processor_count
say(torch.cuda.get_device_name(0), PROGRAMS, "programs")
def build(layers):
    c=replace(PUBLISHED_LLM, text_vocabulary=1000, layers=layers)
    return pack(SpeechTokenModel.build(c, llm_tensors(c, dev), dev), torch.bfloat16, B.POSITIONS)
@torch.inference_mode()
def reference(m, mem, slot, length, inp):
    c=m.config; out={}
    x=m.table[inp].float(); pages=mem.pages[slot].tolist()
    for i,l in enumerate(m.layers):
        n=lambda v: v*torch.rsqrt((v*v).mean()+c.rms_norm_eps)
        h=l.qkv.float()@n(x)+l.bias
        cs,sn=m.cosines[length],m.sines[length]
        r=h[:1024].view(16,32,2); r=torch.stack([r[...,0]*cs-r[...,1]*sn, r[...,1]*cs+r[...,0]*sn],-1).reshape(16,64)
        q,k,v=r[:14],r[14:],h[1024:].view(2,64)
        out[i,'qkv']=torch.cat([r.flatten(),v.flatten()])
        blocks=mem.cache[i][pages[:length//64+1]].float() # [p,2,2,64,64]
        K=blocks[:,:,0].permute(1,0,2,3).reshape(2,-1,64)[:,:length]; V=blocks[:,:,1].permute(1,0,2,3).reshape(2,-1,64)[:,:length]
        K=torch.cat([K,k[:,None]],1); V=torch.cat([V,v[:,None]],1)
        s=torch.einsum('kgd,kpd->kgp',q.view(2,7,64),K)*0.125
        o=torch.einsum('kgp,kpd->kgd',s.softmax(-1),V).reshape(896)
        out[i,'att']=o
        x=x+l.out.float()@o; out[i,'x1']=x
        gu=l.gate_up.float()@n(x); gt=torch.nn.functional.silu(gu[:4864])*gu[4864:]
        out[i,'gated']=gt
        x=x+l.down.float()@gt; out[i,'x']=x
    out['logits']=m.head@n(x)+m.head_bias
    return out
def err(a,b): return f"{((a-b).norm()/b.norm()).item():.2e}"
def one(m,mem,st,n=1,**k):
    
    rows=torch.arange(1,n+1,dtype=torch.int32,device=dev); logits=torch.full((n,m.config.speech.rows),float('nan'),device=dev)
    o=OneLaunch(m,mem,st,rows,logits,**k); o.logits=logits
    return o
def words(o,first,count): 
    w=o._exchange[first:first+count]; lo=(w&0xFFFFFFFF); tags=(w>>32)&0xFFFFFFFF
    return lo,tags
def bf(lo): 
    a=((lo&0xFFFF)<<16).to(torch.int32).view(torch.float32); b=(lo&0xFFFF0000).to(torch.int32).view(torch.float32)
    return torch.stack([a,b],1).flatten()
def fault(o):
    f=o.fault.item()&0xFFFFFFFF
    if f: say(f"FAULT wait {(f>>16)&0x7fff} program {(f>>4)&0xfff} warp {f&15}")
    return f
def phases(m,mem,st,length):
    o=one(m,mem,st); o.launch(); torch.cuda.synchronize(); f=fault(o)
    r=reference(m,mem,1,length,int(mem.state[1,1])); L=m.config.layers-1
    lo,t=words(o,896,576); say('tags', t.unique().tolist()[:4]); say('qkv',err(bf(lo),r[L,'qkv']))
    p=o._exchange[896+576+2432+896:].view(4,448,2); used=length//64+1; n=min(4,(used+1)//2)
    pair=p[:n,:,0]; a=((pair&0xFFFFFFFF)).to(torch.int32).view(torch.float32) if False else (pair<<32>>32).to(torch.int32).view(torch.float32)
    b=(pair>>32).to(torch.int32).view(torch.float32); lse=(p[:n,:,1]<<32>>32).to(torch.int32).view(torch.float32)
    w=torch.softmax(lse*0.6931471805599453,0); att=torch.stack([(a*w).sum(0),(b*w).sum(0)],1).flatten()
    say('attention',err(att,r[L,'att']),'parts',n)
    lo,t=words(o,448,448); say('after out',err(bf(lo),r[L,'x1']))
    lo,t=words(o,896+576,2432); say('gated',err(bf(lo),r[L,'gated']))
    lo,t=words(o,896+576+2432,896); say('last',err((lo<<32>>32).to(torch.int32).view(torch.float32),r[L,'x']))
    say('logits',err(o.logits[0],r['logits']), 'max', (o.logits[0]-r['logits']).abs().max().item(), 'std', r['logits'].std().item())
    return f
def reset(mem,length):
    mem.state[1:,Column.LENGTH]=length; mem.state[1:,Column.ACTIVE]=1; mem.state[1:,Column.INPUT]=1500; mem.state[1:,Column.DECISIONS]=0;mem.state[1:,Column.TOKENS]=0
def filled(m,length):
    mem=B.filled(m,length); mem.cache.mul_(0.5); reset(mem,length); return mem
def us(f): return 1000*timed(f,40,3)
def graph(f):
    return B.graph_of(f)
if 'one' in sys.argv[1:]:
    m=build(1); st=stream(m,PROGRAMS); say('streamed')
    for length in (300,0,63,64,130,900):
        say('length',length)
        if phases(m,filled(m,length),st,length): sys.exit(1)
m=build(24); st=stream(m,PROGRAMS); say('24 layers')
for length in (300,900):
    mem=filled(m,length); ref=reference(m,mem,1,length,1500)['logits']
    old=DecodeStep(m,mem,1); old.rows.fill_(1)
    old.launch(); torch.cuda.synchronize(); say('separate kernels against f32',err(old.logits[0],ref),(old.logits[0]-ref).abs().max().item())
    reset(mem,length)
    o=one(m,mem,st); o.launch(); torch.cuda.synchronize()
    if fault(o): sys.exit(1)
    say('one launch against f32',err(o.logits[0],ref),(o.logits[0]-ref).abs().max().item(), 'against separate', err(o.logits[0],old.logits[0]))
    first=o.logits.clone(); same=True
    for _ in range(200):
        o.logits.fill_(float('nan')); o.launch(); same=same and torch.equal(o.logits,first)
    say('200 times the same bits', same, 'fault', fault(o))
    g=graph(o.launch); say(length,'one launch', f"{us(g.replay):.1f} us")
    def whole(): o.launch(); old_decide()
    old.logits=o.logits
    def old_decide(): old.decide()
    reset(mem,length)
    g1=graph(lambda:(o.launch(),old.decide())); reset(mem,length); say(length,'one launch and sampling', f"{us(g1.replay):.1f} us")
    reset(mem,length); g2=graph(old.launch); reset(mem,length); say(length,'124 launches', f"{us(g2.replay):.1f} us")
    reset(mem,length); g3=graph(old.decide); reset(mem,length); say(length,'sampling alone', f"{us(g3.replay):.1f} us")
    if length==300:
        for name,k in (*((f'ahead {h>>10} KiB, pace {p}, {u} under way, {g} stages, {r} registers',dict(stages=g,registers=r,under_way=u,extra=[f'-DAHEAD={h}',f'-DPACE={p}'])) for h,p,u,g,r in ((0,500,2,5,64),(65536,500,2,5,64),(196608,500,2,5,64),(131072,400,2,5,64),(131072,700,2,5,64),(131072,500,3,5,64),(131072,500,1,5,64),(131072,500,2,5,96),(196608,400,2,5,96),(131072,500,3,5,96),(131072,500,2,3,64),(131072,500,2,3,96),(65536,500,2,12,128))),('bytes alone',dict(extra=['-DSTREAM_ONLY']))):
            reset(mem,length); v=one(m,mem,st,**k); v.launch(); torch.cuda.synchronize(); g=graph(v.launch); say(name, f"{us(g.replay):.1f} us", 'fault',fault(v), [x for x in v.compiled.log.splitlines() if 'Used' in x or 'spill' in x])
    if length==300:
        for k in (dict(),):
            reset(mem,length); v=one(m,mem,st,extra=['-DTRACE'],**k)
            for _ in range(5): v.launch()
            torch.cuda.synchronize(); t=v.trace.cpu().double()
            say('trace', k, 'cycles from the layer before (phases 1..13), mean of layers 4..23')
            for sm in (0,5,50,111,112,113,119,125):
                rows=t[sm,4:24]; base=rows[:,0:1]; d=(rows-base); ok=rows[0]>0
                print(sm, 'layer', int((t[sm,23,0]-t[sm,4,0])/19), ' '.join(f"{i}:{int(d[:,i].mean())}" for i in (1,2,3,14,4,5,6,7,8,9,10,11,12,13) if ok[i]), 'head', [int(t[sm,24,i]-t[sm,24,0]) for i in range(1,4)], 'whole', int(t[sm,24,3]-t[sm,0,0]))
say('end')
