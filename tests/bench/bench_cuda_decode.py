"""A token of a Llama on a GPU, static cache, bfloat16, random weights:
`python tests/bench/bench_cuda_decode.py --size 1b --ways eager,max-autotune`.

Milliseconds of a call by events, medians of rounds in turns; what a call costs
the host; errors of the logits against float64 (norm of the difference over the
norm; of int8 and int4, from float64 with what the stored numbers stand for).
Weights are read once a token: `limit` is the bytes of them as they are in
bfloat16 over --rate, the share beside a figure that of the way's own bytes.
"""

import argparse
import copy
import json
import statistics
import time
from collections import defaultdict

import examples_path  # noqa: F401
import gpu
import tiny_llama as llama
import torch

import torchair
from torchair import backend, quantised

SIZES = {
    "1b": llama.Config(128256, 2048, 16, 32, 8, 8192, 2048, base=500000.0),
    "1b-half": llama.Config(128256, 2048, 8, 32, 8, 8192, 2048, base=500000.0),
    "8b": llama.Config(128256, 4096, 32, 32, 8, 14336, 2048, base=500000.0),
    "small": llama.Config(1024, 256, 2, 4, 2, 512, 128),
}
ROUNDS, CALLS = gpu.rounds(5), 40


def decoder(config, position, batch=1):
    """Its caches are full before the position."""
    with torch.device("meta"):
        model = llama.Llama(config)
    model.to(torch.bfloat16).to_empty(device=gpu.DEVICE)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(std=0.02)
        else:
            parameter.fill_(1)
    for name, table in zip(("cos", "sin"), llama.angles(config), strict=True):
        setattr(model, name, table.to(gpu.DEVICE, torch.bfloat16))
    made = llama.Decoder(model.eval(), batch)
    for name, cache in made.named_buffers():
        if name.startswith(("key", "value")):
            cache[:, :, :position].normal_()
    return made


def graph_of(model):
    """torch's own CUDA graph of an eager call."""
    return gpu.graph_of(model, *model.example)


# By way: bits, numbers that share a scale (0: a row).
WORDS = {
    "int8": (8, 0),
    "int4": (4, 32),
    "int4-128": (4, 128),
    "int4-reduce-overhead": (4, 32),
}


def engine(mode, words=None):
    def make(model):
        config = torchair.CompilerConfig()
        config.mode = mode
        if words:
            config.weights.quantise = f"int{WORDS[words][0]}"
            config.weights.group = WORDS[words][1] or 32
        made = torchair.get_npu_backend(compiler_config=config)
        return torch.compile(model, backend=made)

    return make


def inductor(mode):
    return lambda model: torch.compile(model, mode=mode)


WAYS = {
    "eager": lambda model: model,
    "cudagraphs": graph_of,
    "max-autotune": engine("max-autotune"),
    "reduce-overhead": engine("reduce-overhead"),
    "int8": engine("max-autotune", "int8"),
    "int4": engine("max-autotune", "int4"),
    "int4-128": engine("max-autotune", "int4-128"),
    "int4-reduce-overhead": engine("reduce-overhead", "int4-reduce-overhead"),
    "inductor-reduce-overhead": inductor("reduce-overhead"),
    "inductor-max-autotune": inductor("max-autotune"),
}


def kernels(fn, args, calls=10):
    """Microseconds of each kernel of a call, in order, and the gaps."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(calls):
            fn(*args)
        torch.cuda.synchronize()
    found = [e for e in profile.events() if e.device_type.name == "CUDA"]
    found.sort(key=lambda e: e.time_range.start)
    count = len(found) // calls
    times = defaultdict(list)
    for i, e in enumerate(found[count * 2 :]):
        times[i % count].append((e.name, e.time_range))
    rows = []
    for i in range(count):
        spans = [span.end - span.start for _, span in times[i]]
        after = times[(i + 1) % count][i + 1 == count :]
        gaps = [
            b.start - a.end
            for (_, a), (_, b) in zip(times[i], after, strict=False)
        ]
        rows.append(
            (times[i][0][0], statistics.median(spans), statistics.median(gaps))
        )
    return rows


def show_compile(name, first):
    made = [r for r in backend.records if not r.fallback]
    hosts = sum(len(r.hosts) for r in backend.records)
    spent = sum(r.import_s + r.compile_s for r in made)
    torchs = [r.fallback for r in backend.records if r.fallback]
    print(
        f"{name}: first call {first:.2f} s, engine {spent:.2f} s, {hosts} HOST"
        f" {[str(h) for r in made for h in r.hosts][:4]} {torchs}",
        flush=True,
    )


@torch.no_grad()
def start(names, model, args):
    ways, model.first = {}, {}
    for name in names:
        torch._dynamo.reset()
        backend.records.clear()
        model.example = args
        begin = time.perf_counter()
        fn = WAYS[name](model)
        for i in range(4):
            fn(*args)
            gpu.synchronize()
            if i == 0:
                first = time.perf_counter() - begin
        show_compile(name, first)
        ways[name] = fn
        model.first[name] = first
    return ways


def linears(model):
    return (m for m in model.modules() if isinstance(m, torch.nn.Linear))


def bytes_of(model, name):
    """That a token reads of weights."""
    total = sum(
        p.nbytes for n, p in model.named_parameters() if "embedding" not in n
    )
    bits, group = WORDS.get(name, (0, 0))
    for layer in linears(model) if bits else ():
        rows, depth = layer.weight.shape
        scales = 2 * depth // group if group else 4
        total += rows * (depth * bits // 8 + scales) - layer.weight.nbytes
    return total


def exact_of(model, words):
    exact = copy.deepcopy(model).double()
    for own, wide in zip(linears(model), linears(exact), strict=True):
        if words is not None:
            s = quantised.store(own.weight, *words)
            made = quantised.dequantise(s.weight, s.scale, None, s.bits)
            wide.weight.copy_(made)
    return exact


def errors(ways, model, args):
    found = {name: fn(*args).double() for name, fn in ways.items()}
    wrong = {}
    for words in {WORDS.get(name) for name in found}:
        want = exact_of(model, words)(*args)
        for name, y in found.items():
            if WORDS.get(name) == words:
                wrong[name] = ((y - want).norm() / want.norm()).item()
    return wrong


def read_options():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--size", choices=SIZES, default="1b")
    options.add_argument("--position", type=int, default=1000)
    options.add_argument("--batch", type=int, default=1, help="sequences")
    options.add_argument("--ways", default=",".join(WAYS))
    options.add_argument("--rate", type=float, default=4.4, help="TB/s")
    options.add_argument("--kernels", help="write times of kernels, of a way")
    options.add_argument("--note", default="", help="behind the figures' name")
    options.add_argument("--text", help="write the engine's steps")
    return options.parse_args()


@torch.no_grad()
def main():
    options = read_options()
    torch.manual_seed(0)
    config = SIZES[options.size]
    position = min(options.position, config.longest - 1)
    batch = options.batch
    model = decoder(config, position, batch)
    token = torch.randint(0, config.vocabulary, (batch, 1), device=gpu.DEVICE)
    args = (token, torch.tensor([position], device=gpu.DEVICE))
    ways = start(options.ways.split(","), model, args)
    if options.text:
        with open(options.text, "w") as out:
            for record in backend.records:
                program = record.program and record.program()
                for kind in range(4) if program else ():
                    out.write(f"# text {kind}\n{program.text(kind)}\n")
    spent = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, fn in ways.items():
            spent[name].append(gpu.milliseconds(fn, args, CALLS))
    read = bytes_of(model, "")
    limit = read / options.rate / 1e9
    wrong = errors(ways, model, args)
    print(f"limit {limit:.4f} ms: {read / 1e9:.3f} GB at {options.rate} TB/s")
    for name, fn in ways.items():
        ms = statistics.median(spent[name])
        share = bytes_of(model, name) / read
        host = statistics.median(
            gpu.host_microseconds(fn, args, CALLS) for _ in range(ROUNDS)
        )
        print(
            f"{name:26s} {ms:8.4f} ms  {share * limit / ms * 100:5.1f} %  host"
            f" {host:7.1f} us  error {wrong[name]:.2e}",
            flush=True,
        )
        gpu.note(
            "decode",
            f"Llama-{options.size.upper()}{options.note}",
            name,
            ms=ms,
            host_us=host,
            error=wrong[name],
            first_s=model.first[name],
            limit_ms=share * limit,
        )
    if options.kernels:
        rows = kernels(ways[options.ways.split(",")[-1]], args)
        with open(options.kernels, "w") as out:
            json.dump(rows, out)
        print(
            f"{len(rows)} kernels, {sum(r[1] for r in rows):.1f} us,"
            f" between them {sum(r[2] for r in rows[:-1]):.1f} us"
        )


if __name__ == "__main__":
    main()
