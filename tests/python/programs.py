"""Random programs of torch: what a compiled one gives, writes, shares and
differentiates is what eager does.

    python tests/python/programs.py FIRST SECONDS   seeds from FIRST on
    python tests/python/programs.py FIRST           this one, with its text

A program has a few inputs of odd sizes, dtypes and strides, up to 24 lines of
pointwise operators, folds, views, indices, products, norms and writes, and some
of its values as results. A line that eager refuses, or whose numbers are not
finite or large, is left out. What torch's own aot_eager does otherwise than
eager is not ours. Results that are views of one value in eager may be apart.
Halves are left to reduce-overhead, which rounds as eager does: max-autotune may
keep what is between two roundings in float32.
"""

import random
import sys
import time

import torch
import torch.nn.functional as F
from helpers import seeded

MODES = ("max-autotune", "reduce-overhead")
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17)
FLOATS = (torch.float32, torch.float32, torch.float64)
HALVES = (torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
LARGEST, MOST_ELEMENTS, MOST_LINES = 1e3, 6000, 24
# Numbers of float64 may be made of float32.
TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-5}
TOLERANCE_OF_HALVES = 4e-2

# {a}: the operand; {b}: any value that was picked beside it
POINTWISE = """
torch.sin({a}) | torch.tanh({a}) | F.relu({a}) | F.gelu({a}) | F.silu({a})
torch.sigmoid({a}) | {a}.abs() | {a}.square() | torch.exp(-{a}.abs())
{a}.clamp(-1, 1) | -{a} | torch.sqrt({a}.abs() + 0.5) | {a} * 0.5 + 1
torch.log1p({a}.abs()) | torch.rsqrt({a}.square() + 1) | torch.erf({a})
F.leaky_relu({a}, 0.1) | F.softplus({a}) | F.elu({a}) | F.hardswish({a})
torch.atan({a}) | 1 / ({a}.abs() + 1) | F.mish({a})
{a}.masked_fill({a} > 1, 2)
"""
OF_INTEGERS = """
{a} + 1 | {a}.float() | {a}.int() // 2 | {a} > 2 | {a}.int().clamp(1, 4)
{a}.long() % 3 | {a}.int().neg() | F.one_hot({a}.long().abs() % 5, 5)
"""
OF_TWO = """
{a} + {b} | {a} * {b} | {a} + {b} * 2 | torch.maximum({a}, {b}) | {a} < {b}
torch.where({a} > {b}, {a}, {b}) | {a}.float() - {b} | {a} * 0.5 + {b}
"""
# {x}: an axis, {y}: another or the same, {keep}: True or False
FOLDS = """
{a}.sum({x}, keepdim={keep}) | {a}.amax({x}, keepdim={keep})
{a}.amin({x}, keepdim={keep}) | {a}.float().mean({x}, keepdim={keep})
({a} * 0.5).prod({x}, keepdim={keep}) | {a}.float().softmax({x})
{a}.float().log_softmax({x}) | {a}.float().logsumexp({x}, keepdim={keep})
{a}.cumsum({x}) | {a}.max({x}, keepdim={keep})[0] | {a}.any({x}, keepdim={keep})
({a}.float().var({x}, keepdim={keep}, correction=0) + 0.1).sqrt()
({a}.float().square().sum({x}, keepdim={keep}) + 0.1).sqrt()
"""
# {n}: elements along axis {x}; {at}: a place there, {to}: one behind it
VIEWS = """
{a}.transpose({x}, {y}) | {a}.transpose(0, {x})[{at}:{to}] | {a}.flatten()
{a}.transpose(0, {x})[{at}::2] | {a}.unsqueeze({x}) | {a}.squeeze()
{a}.unsqueeze(0).expand(3, *{a}.shape) | {a}.flip({x}) | {a}.roll({at}, {x})
{a}.select({x}, {at}) | {a}.narrow({x}, {at}, {to} - {at}) | {a}.contiguous()
torch.cat([{a}, {a} * 2], {x}) | torch.stack([{a}, {a}], {x})
{a}.chunk(2, {x})[0] | {a}.repeat_interleave(2, {x}) | {a}.movedim({x}, 0)
F.pad({a}, (1, -1, 0, 1), value=1) | {a}.diagonal(0, 0, 1) | {a}.tril({at})
{a}.unfold({x}, 2, 1) | {a}.transpose(0, {x})[torch.tensor([{at}, 0, {at}])]
{a}.index_select({x}, torch.tensor([{at}, {at}])) | {a}.triu({at} - 1)
{a}.gather({x}, ({a}.detach().float().abs() * 3).long() % {n})
{a}.flatten()[({a}.detach().float().abs() * 5).long() % {a}.numel()]
{a}.reshape(-1, {a}.shape[-1]) | {a}.permute(*range(1, {a}.dim()), 0)
"""
# {c}: elements along the last axis
LAYERS = """
{a} @ {a}.transpose(-1, -2) * 0.2 | F.layer_norm({a}, ({c},), eps=0.1)
{a} * torch.rsqrt({a}.square().mean(-1, keepdim=True) + 0.1)
F.linear({a}, torch.linspace(-1, 1, 3 * {c}).view(3, {c}).to({a}.dtype)) * 0.3
F.scaled_dot_product_attention({a}, {a}, {a}, is_causal={keep})
F.group_norm({a}, 1, eps=0.1) | F.avg_pool2d({a}, 2, ceil_mode=True)
F.max_pool2d({a}, 2, ceil_mode=True) | F.interpolate({a}, scale_factor=2)
torch.einsum('...ij,...ik->...jk', {a}, {a}) * 0.1
F.conv2d({a}, torch.ones(4, {a}.shape[1], 3, 3).to({a}.dtype), padding=1) * 0.1
"""
WRITES = """
{a}.add_(1) | {a}.mul_(0.5) | {a}[..., : {c} // 2] = 2 | {a}[0].fill_(1)
{a}.select(-1, -1).zero_() | {a}[{a} > 1] = 1 | {a}[torch.tensor([0])] = 1
{a}[1:] += {a}[:-1].clone() | {a}.copy_({b}.clone())
{a}.scatter_(-1, ({a}.detach().float().abs() * 2).long() % {c}, 1)
{a}.index_add_(0, torch.tensor([0, 0]), torch.cat([{a}[:1], {a}[:1]]))
"""


def table(text):
    return [t.strip() for line in text.splitlines() for t in line.split(" | ")]


# kinds of lines, and how often
KINDS = (
    (POINTWISE, 20),
    (OF_TWO, 16),
    (FOLDS, 12),
    (VIEWS, 20),
    (LAYERS, 10),
    (WRITES, 10),
)
TABLES = {text: table(text.strip()) for text, _ in KINDS}
TABLES[OF_INTEGERS] = table(OF_INTEGERS.strip())
WEIGHTS = [often for _, often in KINDS]
CASTS = "float32 float64 int32 int64 uint8"


def is_sound(x):
    """Small, and with numbers that a rounding does not make others."""
    if x.numel() > MOST_ELEMENTS or x.dim() > 5:
        return False
    if not x.is_floating_point() or x.numel() == 0:
        return True
    return bool(x.isfinite().all()) and bool(x.abs().max() < LARGEST)


class Program:
    """text: of a function f; inputs: its arguments; results: their names."""

    def __init__(self, seed, grad, halves):
        self.random = random.Random(seed)
        self.grad = grad
        self.dtypes = [*FLOATS, *(() if grad else INTEGERS)]
        self.dtypes += HALVES if halves else ()
        self.inputs = {}
        self.values = {}
        self.lines = []
        for i in range(self.random.randint(2, 4)):
            self.inputs[f"x{i}"] = self.values[f"x{i}"] = self.input(seed + i)
        self.inputs = {n: _copied(x) for n, x in self.inputs.items()}
        for _ in range(self.random.choice((3, 6, 10, 16, MOST_LINES))):
            self.line()
        made = [n for n in self.values if n not in self.inputs]
        some = self.random.sample(made, min(len(made), 4)) or ["x0"]
        self.results = sorted({*some, *made[-1:]})
        head = f"def f({', '.join(self.inputs)}):\n"
        body = "".join(f"    {line}\n" for line in self.lines)
        self.text = f"{head}{body}    return {', '.join(self.results)},\n"

    def input(self, seed):
        size = self.random.choices(SIZES, k=self.random.choice((1, 2, 3, 4)))
        if self.random.random() < 0.3:  # sizes that tell no axes apart
            size = size[:1] * min(len(size), 3)
        if self.values and self.random.random() < 0.4:
            size = self.random.choice([*self.values.values()]).shape
        dtype = self.random.choice(self.dtypes)
        x = torch.randn(size, generator=seeded(seed, "cpu")) * 2
        x = x.to(dtype) if dtype.is_floating_point else x.abs().to(dtype)
        how = self.random.random()
        if how < 0.2 and x.dim() > 1:
            return x.transpose(-1, -2)
        return x.repeat_interleave(2, -1)[..., ::2] if how < 0.3 else x

    def pick(self):
        names = list(self.values)
        return self.random.choice(
            names[-6:] if self.random.random() < 0.6 else names
        )

    def line(self):
        """One more; none where eager refuses it."""
        a, b = self.pick(), self.pick()
        x = self.values[a]
        kind = self.random.choices([k for k, _ in KINDS], WEIGHTS)[0]
        if kind is POINTWISE and not x.is_floating_point():
            kind = OF_INTEGERS
        if kind is WRITES and self.grad and a in self.inputs:
            return
        axis = self.random.randrange(-x.dim(), x.dim()) if x.dim() else 0
        n = x.shape[axis] if x.dim() else 1
        at = self.random.randrange(n) if n else 0
        text = self.random.choice(TABLES[kind]).format(
            a=a,
            b=b,
            x=axis,
            y=self.random.randrange(x.dim()) if x.dim() else 0,
            n=n,
            at=at,
            to=self.random.randint(at + 1, n) if n else 1,
            c=x.shape[-1] if x.dim() else 1,
            keep=self.random.random() < 0.5,
        )
        if self.random.random() < 0.05 and not self.grad:
            text = f"{a}.to(torch.{self.random.choice(CASTS.split())})"
            kind = POINTWISE
        self.write(a, text) if kind is WRITES else self.value(text)

    def value(self, text):
        try:
            made = eval(text, {"torch": torch, "F": F}, self.values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return
        if is_sound(made):
            name = f"v{len(self.lines)}"
            self.values[name] = made
            self.lines.append(f"{name} = {text}")

    def write(self, name, text):
        x = self.values[name]
        if 0 in x.stride() or not self.is_apart(x):
            return
        memory = x.untyped_storage()
        kept = memory.clone()
        try:
            exec(text, {"torch": torch, "F": F}, self.values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            pass
        else:
            if all(map(is_sound, self.values.values())):
                self.lines.append(text)
                return
        memory.copy_(kept)

    def is_apart(self, x):
        """No element of x lies where another does."""
        flat = torch.arange(x.untyped_storage().nbytes() // x.element_size())
        places = flat.as_strided(x.shape, x.stride(), x.storage_offset())
        return places.unique().numel() == x.numel()

    def arguments(self):
        made = [_copied(x) for x in self.inputs.values()]
        return [x.requires_grad_() for x in made] if self.grad else made

    def function(self):
        names = {"torch": torch, "F": F}
        exec(self.text, names)
        return names["f"]


def _copied(x):
    """With its strides."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


def backward(results, arguments):
    """Gradients of a sum of all results with factors of their own."""
    terms = [
        (y.double() * torch.linspace(-1, 1, y.numel()).view(y.shape)).sum()
        for y in results
        if y.requires_grad
    ]
    if terms:
        sum(terms).backward()
    return [x.grad for x in arguments]


def shared(tensors):
    """Pairs of names whose tensors lie in one memory."""
    places = {n: x.untyped_storage().data_ptr() for n, x in tensors.items()}
    names = [n for n, x in tensors.items() if x.numel()]
    return {(a, b) for a in names for b in names if places[a] == places[b]}


def difference(got, want, loose):
    """'' or what differs."""
    if got is None or want is None:
        return "" if got is want else "a gradient is None"
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype}{[*got.shape]}, not {want.dtype}{[*want.shape]}"
    if not want.is_floating_point() or want.numel() == 0:
        return "" if torch.equal(got, want) else "other integers"
    scale = 1 + want.double().abs().max().item()
    error = (got.double() - want.double()).abs().max().item() / scale
    most = TOLERANCE_OF_HALVES if loose else TOLERANCES[want.dtype]
    return "" if error <= most else f"{want.dtype} off by {error:.1e}"


def named(kind, names, tensors):
    return {f"{kind} {n}": x for n, x in zip(names, tensors, strict=True)}


def run(program, fn):
    """Results, inputs and gradients, by what they are; what shares memory."""
    arguments = program.arguments()
    results = fn(*arguments)
    found = named("input", program.inputs, arguments)
    found |= named("result", program.results, results)
    memory = shared(found)
    if program.grad:
        grads = backward(results, arguments)
        found |= named("gradient", program.inputs, grads)
    return {n: x if x is None else x.detach() for n, x in found.items()}, memory


def compare(program, want, loose, **how):
    """'' or how the compiled program differs from eager, in two calls."""
    torch._dynamo.reset()
    fn = torch.compile(program.function(), **how)
    for _ in range(2):
        try:
            found, memory = run(program, fn)
        except Exception as why:  # noqa: BLE001  whatever a backend raises
            return f"{type(why).__name__}: {why}"
        for name, x in found.items():
            if said := difference(x, want[0][name], loose):
                return f"{name}: {said}"
        if more := memory - want[1]:
            return f"in one memory, but not in eager: {sorted(more)}"
    return ""


def chosen(seed):
    """A program, its mode and how else it is compiled."""
    ways = random.Random(~seed)
    mode, grad = ways.choice(MODES), ways.random() < 0.35
    program = Program(seed, grad, halves=mode == "reduce-overhead")
    return program, mode, {"dynamic": ways.random() < 0.3}


def check(seed):
    """'' or how a program of this seed differs; None: eager cannot run it."""
    program, mode, how = chosen(seed)
    loose = any(x.dtype in HALVES for x in program.values.values())
    try:
        want = run(program, program.function())
    except RuntimeError:  # what autograd saved was written
        return None
    said = compare(program, want, loose, backend="torchair", mode=mode, **how)
    if not said or compare(program, want, loose, backend="aot_eager", **how):
        return ""
    head = f"seed {seed}, {mode}, {how}, gradients {program.grad}"
    return f"{head}: {said}\n{program.text}"


def main():
    first = int(sys.argv[1])
    if len(sys.argv) < 3:
        print(chosen(first)[0].text, check(first), sep="\n")
        return
    end, seed, ran = time.monotonic() + float(sys.argv[2]), first, 0
    while time.monotonic() < end:
        said = check(seed)
        ran += said is not None
        seed += 1
        if said:
            print(said, flush=True)
    print(f"{ran} programs, seeds {first} to {seed - 1}")


if __name__ == "__main__":
    main()
