"""Milliseconds of a call of models on a GPU, eager and compiled, by events:
`python tests/bench/bench_cuda_models.py`. Medians of 5 times 20 calls; errors
are against eager. Needs transformers and torchvision for some of them."""

import copy
import statistics
import time

import torch
from torch import nn

import torchair
from torchair import backend

ROUNDS, CALLS = 5, 20


class Block(nn.Module):
    """A layer of BERT, norms first."""

    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x))
        parts = parts.view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


class Logits(nn.Module):
    """A language model without its cache, or an encoder."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False)[self.name]


def compiled(fn, mode):
    config = torchair.CompilerConfig()
    config.mode = mode
    made = torchair.get_npu_backend(compiler_config=config)
    return torch.compile(fn, backend=made)


def milliseconds(fn, *args):
    spent = []
    for _ in range(3):
        fn(*args)
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(CALLS):
            fn(*args)
        end.record()
        torch.cuda.synchronize()
        spent.append(begin.elapsed_time(end) / CALLS)
    return statistics.median(spent)


@torch.no_grad()
def show(name, model, *args):
    want = model(*args).double()
    line = f"{name}: eager {milliseconds(model, *args):.3f}"
    for mode in ("reduce-overhead", "max-autotune"):
        torch._dynamo.reset()
        backend.records.clear()
        fast = compiled(model, mode)
        begin = time.perf_counter()
        found = fast(*args).double()
        torch.cuda.synchronize()
        first = time.perf_counter() - begin
        error = ((found - want).norm() / want.norm()).item()
        hosts = sum(len(r.hosts) for r in backend.records)
        torchs = [r.fallback for r in backend.records if r.fallback]
        line += (
            f" | {mode} {milliseconds(fast, *args):.3f} (first call"
            f" {first:.1f} s, error {error:.0e}, {hosts} HOST {torchs})"
        )
    print(line, flush=True)


def blocks(count, dtype):
    layers = [Block(384, 12, 1536) for _ in range(count)]
    return nn.Sequential(*layers).cuda().to(dtype)


def chain(x):
    for _ in range(4):
        x = torch.sin(x) * 1.01 + x
    return x


def show_libraries():
    from torchvision.models import resnet50
    from transformers import (
        BertConfig,
        BertModel,
        LlamaConfig,
        LlamaForCausalLM,
    )

    bert = BertModel(BertConfig(), add_pooling_layer=False).cuda().eval()
    ids = torch.randint(0, 1000, (1, 512), device="cuda")
    show("BERT base 1 x 128", Logits(bert, "last_hidden_state"), ids[:, :128])
    image = torch.randn(1, 3, 224, 224, device="cuda")
    show("ResNet-50 1", resnet50().cuda().eval(), image)
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128256,
    )
    with torch.device("cuda"):
        llama = LlamaForCausalLM(config).bfloat16().eval()
    show("Llama 1B 1 token", Logits(llama, "logits"), ids[:, :1])
    show("Llama 1B 512 tokens", Logits(llama, "logits"), ids)


def show_training():
    eager = blocks(2, torch.float32)
    ours = copy.deepcopy(eager)
    x = torch.randn(4, 32, 384, device="cuda")
    torch._dynamo.reset()
    for model in (eager, compiled(ours, "max-autotune")):
        model(x).square().mean().backward()
    pairs = zip(eager.parameters(), ours.parameters(), strict=True)
    worst = max((a.grad - b.grad).norm() / a.grad.norm() for a, b in pairs)
    print(f"gradients of 2 blocks, float32: error {worst.item():.0e}")


def main():
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for sizes in ((1, 32), (32, 128)):
            x = torch.randn(*sizes, 384, device="cuda", dtype=dtype)
            show(f"6 blocks {dtype} {sizes}", blocks(6, dtype), x)
    big = torch.randn(1 << 26, device="cuda")
    show("chain 256 MB", chain, big)
    print(f"copy of it: {milliseconds(big.clone):.3f}")
    x = torch.randn(8192, 8192, device="cuda")
    show("softmax 8192 x 8192", lambda x: x.softmax(-1), x)
    show_libraries()
    show_training()


if __name__ == "__main__":
    main()
