"""Random programs of torch: what a compiled one gives, writes, shares and
differentiates is what eager does, with inputs of other sizes, too.

    python tests/python/programs.py FIRST SECONDS [DEVICE]   from FIRST on
    python tests/python/programs.py FIRST            this one, with its text

A program has a few inputs of odd sizes, dtypes and strides, up to 24 lines of
pointwise operators, folds, views, indices, products, norms and writes, and some
of its values as results. A line that eager refuses, or whose numbers are not
finite or large, is left out. What torch's own aot_eager does otherwise than
eager is not ours. Results that are views of one value in eager may be apart.
Halves are left to reduce-overhead, which rounds as eager does: max-autotune may
keep what is between two roundings in float32.
"""

import random

import helpers
import seeds
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

# What AOTAutograd says where a view of a result, which is none for autograd (of
# ours, and of Inductor), is written behind a break.
NOT_YET = "aot_autograd() does not yet handle"

# {a}: the operand; {b}: any value that was picked beside it
POINTWISE = """
torch.sin({a}) | torch.tanh({a}) | F.relu({a}) | F.gelu({a}) | F.silu({a})
torch.sigmoid({a}) | {a}.abs() | {a}.square() | torch.exp(-{a}.abs())
{a}.clamp(-1, 1) | -{a} | torch.sqrt({a}.abs() + 0.5) | {a} * 0.5 + 1
torch.log1p({a}.abs()) | torch.rsqrt({a}.square() + 1) | torch.erf({a})
F.leaky_relu({a}, 0.1) | F.softplus({a}) | F.elu({a}) | F.hardswish({a})
torch.atan({a}) | 1 / ({a}.abs() + 1) | F.mish({a})
{a}.masked_fill({a} > 1, 2) | {a}.pow(3) | ({a}.abs() + 0.1).pow(1.5)
F.hardtanh({a}) | F.selu({a}) | F.logsigmoid({a}) | torch.expm1(-{a}.abs())
F.softshrink({a}) | F.threshold({a}, 0.1, 0.1) | torch.cos({a}) | F.relu6({a})
{a}.nan_to_num() | torch.log({a}.abs() + 0.1) | {a}.sign() | F.softsign({a})
({a}.cpu() * 2).to({a}.device) | {a} + torch.ones(1, device='cpu').to({a})
{a} * torch.arange({a}.shape[-1], device='cpu').sin().to({a}.device)
{a}[..., torch.zeros(2, dtype=torch.long, device='cpu')]
"""
OF_INTEGERS = """
{a} + 1 | {a}.float() | {a}.int() // 2 | {a} > 2 | {a}.int().clamp(1, 4)
{a}.long() % 3 | {a}.int().neg() | F.one_hot({a}.long().abs() % 5, 5)
"""
OF_TWO = """
{a} + {b} | {a} * {b} | {a} + {b} * 2 | torch.maximum({a}, {b}) | {a} < {b}
torch.where({a} > {b}, {a}, {b}) | {a}.float() - {b} | {a} * 0.5 + {b}
torch.lerp({a}, {b}, 0.3) | torch.addcmul({a}, {b}, {b}, value=0.5) | {a} == {b}
torch.logaddexp({a}, {b}) | F.mse_loss({a}, {b}) | F.smooth_l1_loss({a}, {b})
torch.hypot({a}, {b} + 0.1) | torch.minimum({a}, {b}) | torch.rsub({a}, {b})
{a} + {b}.float().mean() | {a} > {b}.float().amax() * 0.5
torch.where({a} > 0.3, {a}, {b}.float().mean()) | {a} * {b}.double().mean()
{a}.float() ** 2 - {b} * {b} | torch.where({a} != 0, {b}, 0)
{a} * {b}.cpu().sum().to({a}.device) | {a}.cpu().float().mean().to({b}) + {b}
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
{a}.float().std({x}, keepdim={keep}) | {a}.all({x}, keepdim={keep}) | {a}.sum()
torch.linalg.vector_norm({a}.float(), 1, {x}) | {a}.count_nonzero({x})
({a} * 0.5).cumprod({x}) | {a}.cummax({x})[0] | {a}.cummin({x})[0] | {a}.amax()
{a}.float().logcumsumexp({x}) | {a}.sort({x})[0] | {a}.topk(1, {x})[0]
{a}.float().mean() | {a}.aminmax(dim={x})[1] | {a}.kthvalue(1, {x})[0]
"""
# {at}: a place along axis {x}, {to}: one behind it
VIEWS = """
{a}.transpose({x}, {y}) | {a}.transpose(0, {x})[{at}:{to}] | {a}.flatten()
{a}.transpose(0, {x})[{at}::2] | {a}.unsqueeze({x}) | {a}.squeeze()
{a}.unsqueeze(0).expand(3, *{a}.shape) | {a}.flip({x}) | {a}.roll({at}, {x})
{a}.select({x}, {at}) | {a}.narrow({x}, {at}, {to} - {at}) | {a}.contiguous()
torch.cat([{a}, {a} * 2], {x}) | torch.stack([{a}, {a}], {x})
{a}.chunk(2, {x})[0] | {a}.repeat_interleave(2, {x}) | {a}.movedim({x}, 0)
F.pad({a}, (1, -1, 0, 1), value=1) | {a}.diagonal(0, 0, 1) | {a}.tril({at})
{a}.unfold({x}, 2, 1) | {a}.triu({at} - 1)
{a}.transpose(0, {x})[torch.tensor([{at}, 0, {at}], device={a}.device)]
{a}.index_select({x}, torch.tensor([{at}, {at}], device={a}.device))
{a}.gather({x}, ({a}.detach().float().abs() * 3).long() % {a}.shape[{x}])
{a}.flatten()[({a}.detach().float().abs() * 5).long() % {a}.numel()]
{a}.reshape(-1, {a}.shape[-1]) | {a}.permute(*range(1, {a}.dim()), 0)
{a}.repeat(2, *[1] * ({a}.dim() - 1)) | {a}.unflatten({x}, (1, -1)) | {a}.T
{a}.rot90(1, (0, 1)) | {a}.diag_embed() | {a}.split(2, {x})[-1] | {a}.ravel()
{a}.take_along_dim(({a}.detach() > 0).long(), {x}) | {a}.broadcast_to({b}.shape)
F.pad({a}, (1, 1), mode='reflect') | F.pad({a}, (2, 0), mode='circular')
F.pixel_shuffle({a}, 2) | F.pixel_unshuffle({a}, 2) | F.unfold({a}, 2)
torch.cat([{a}, {b}], {x}) | torch.stack([{a}, {b}], {x}) | {a}.clone()
"""
LAYERS = """
{a} @ {a}.transpose(-1, -2) * 0.2 | F.layer_norm({a}, {a}.shape[-1:], eps=0.1)
{a} * torch.rsqrt({a}.square().mean(-1, keepdim=True) + 0.1)
F.linear({a}, {a}.new_ones(3, {a}.shape[-1]).cumsum(0) - 2) * 0.3
F.scaled_dot_product_attention({a}, {a}, {a}, is_causal={keep})
F.group_norm({a}, 1, eps=0.1) | F.avg_pool2d({a}, 2, ceil_mode=True)
F.max_pool2d({a}, 2, ceil_mode=True) | F.interpolate({a}, scale_factor=2)
torch.einsum('...ij,...ik->...jk', {a}, {a}) * 0.1
F.conv2d({a}, {a}.new_ones(4, {a}.shape[1], 3, 3), padding=1) * 0.1
F.conv1d({a}, {a}.new_ones(2, {a}.shape[1], 3), padding=1, stride=2) * 0.1
F.conv_transpose2d({a}, {a}.new_ones({a}.shape[1], 2, 2, 2), stride=2) * 0.1
F.batch_norm({a}, None, None, training=True, eps=0.1) | F.instance_norm({a})
F.normalize({a}, dim={x}) | F.rms_norm({a}, {a}.shape[-1:], eps=0.1)
{a} @ {b} * 0.2 | F.cosine_similarity({a}, {b}, {x}, 0.1) | F.glu({a}, {x})
F.adaptive_avg_pool2d({a}, 2) | F.max_pool1d({a}, 2) | F.avg_pool1d({a}, 2)
F.interpolate({a}, scale_factor=2, mode='bilinear') | torch.outer({a}, {b})
F.cross_entropy({a}, ({a}.detach()[:, 0] * 2).long().abs() % {a}.shape[1])
F.embedding(({a}.detach() * 2).long().abs() % {b}.shape[0], {b})
torch.cdist({a}, {a} + 1) | F.scaled_dot_product_attention({a}, {a}, {a} * 2)
"""
WRITES = """
{a}.add_(1) | {a}.mul_(0.5) | {a}[..., : {a}.shape[-1] // 2] = 2
{a}.select(-1, -1).zero_() | {a}[{a} > 1] = 1 | {a}[0].fill_(1)
{a}[torch.tensor([0], device={a}.device)] = 1
{a}[1:] += {a}[:-1].clone() | {a}.copy_({b}.clone())
{a}.scatter_(-1, ({a}.detach().float().abs() * 2).long() % {a}.shape[-1], 1)
{a}.index_add_(0, {a}.new_zeros(2).long(), torch.cat([{a}[:1], {a}[:1]]))
{a}.clamp_(-1, 1) | {a}.masked_fill_({a} > 1, 0) | {a}.diagonal(0, 0, 1).add_(1)
{a}.transpose(0, -1).mul_(0.5) | {a}.view(-1)[::2] += 1 | {a}.fill_diagonal_(1)
{a}.index_fill_(-1, {a}.new_zeros(1).long(), 2) | {a}.relu_() | {a}.copy_({b})
{a}.scatter_add_(0, ({a}.detach() > 1).long() * 0, {a}.clone()) | {a}.neg_()
{a}.index_put_(({a}.new_zeros(2).long(),), {a}[:1] + 1, accumulate=True)
{a}.index_copy_(-1, {a}.new_zeros(1).long(), {a}[..., -1:].clone())
{a}.view(-1)[0] = {a}.sum() | {a}[::2].mul_({a}[:1].clone()) | {a}.sub_({b})
{a}.narrow(0, 0, 1).copy_({a}[-1:].clone()) | {a}.lerp_({b}, 0.5) | {a}.div_(2)
{a}.unsqueeze(0).squeeze(0).add_({b}) | {a}[..., 0] = {b}.float().mean()
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


def made(size, dtype, how, seed):
    """An input; how: from 0 to 1, its strides."""
    x = torch.randn(size, generator=seeded(seed, "cpu"), device="cpu") * 2
    x = x.to(dtype) if dtype.is_floating_point else x.abs().to(dtype)
    if how < 0.2 and x.dim() > 1:
        return x.transpose(-1, -2)
    return x.repeat_interleave(2, -1)[..., ::2] if how < 0.3 else x


class Program:
    """text: of a function f; inputs: its arguments; others: of other sizes;
    results: names of what it gives."""

    def __init__(self, seed, grad, halves):
        self.seed, self.random = seed, random.Random(seed)
        self.grad = grad
        self.dtypes = [*FLOATS, *(() if grad else INTEGERS)]
        self.dtypes += HALVES if halves else ()
        self.inputs = {}
        self.values = {}
        self.kinds = {}
        self.lines = []
        for i in range(self.random.randint(2, 4)):
            self.inputs[f"x{i}"] = self.values[f"x{i}"] = self.input(i)
        self.inputs = {n: _copied(x) for n, x in self.inputs.items()}
        self.others = self.of_other_sizes()
        for _ in range(self.random.choice((3, 6, 10, 16, MOST_LINES))):
            self.line()
        new = [n for n in self.values if n not in self.inputs]
        some = self.random.sample(new, min(len(new), 4)) or ["x0"]
        self.results = sorted({*some, *new[-1:]})
        head = f"def f({', '.join(self.inputs)}):\n"
        body = "".join(f"    {line}\n" for line in self.lines)
        self.text = f"{head}{body}    return {', '.join(self.results)},\n"

    def input(self, i):
        size = self.random.choices(SIZES, k=self.random.choice((1, 2, 3, 4)))
        if self.random.random() < 0.3:  # sizes that tell no axes apart
            size = size[:1] * min(len(size), 3)
        if self.values and self.random.random() < 0.4:
            size = self.random.choice([*self.values.values()]).shape
        kind = self.random.choice(self.dtypes), self.random.random()
        self.kinds[f"x{i}"] = size, *kind, self.seed + i
        return made(size, *kind, self.seed + i)

    def of_other_sizes(self):
        """Equal ones are equal again, and 1 stays."""
        sizes = {x: x + self.random.choice((-1, 1, 2, 5)) for x in SIZES}
        sizes |= {1: 1, 2: 3}
        return {
            n: made([sizes.get(d, d) for d in size], *rest)
            for n, (size, *rest) in self.kinds.items()
        }

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
            at=at,
            to=self.random.randint(at + 1, n) if n else 1,
            keep=self.random.random() < 0.5,
        )
        if self.random.random() < 0.05 and not self.grad:
            text = f"{a}.to(torch.{self.random.choice(CASTS.split())})"
            kind = POINTWISE
        self.write(a, text) if kind is WRITES else self.value(text)

    def value(self, text):
        try:
            value = eval(text, {"torch": torch, "F": F}, self.values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return
        if is_sound(value):
            name = f"v{len(self.lines)}"
            self.values[name] = value
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

    def arguments(self, inputs, device):
        copies = [_copied(x, device) for x in inputs.values()]
        return [x.requires_grad_() for x in copies] if self.grad else copies

    def function(self):
        names = {"torch": torch, "F": F}
        exec(self.text, names)
        return names["f"]


def _copied(x, device="cpu"):
    """With its strides."""
    how = {"dtype": x.dtype, "device": device}
    return torch.empty_strided(x.shape, x.stride(), **how).copy_(x)


def weighed(x):
    """Its sum with factors of their own."""
    factors = torch.linspace(-1, 1, x.numel(), device=x.device)
    return (x.double() * factors.view(x.shape)).sum()


def backward(results, arguments):
    """Gradients of a sum of all results."""
    terms = [weighed(y) for y in results if y.requires_grad]
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


def run(program, fn, inputs, device):
    """Results, inputs and gradients, by what they are; what shares memory."""
    arguments = program.arguments(inputs, device)
    results = fn(*arguments)
    found = named("input", program.inputs, arguments)
    found |= named("result", program.results, results)
    memory = shared(found)
    if program.grad:
        grads = backward(results, arguments)
        found |= named("gradient", program.inputs, grads)
    return {n: x if x is None else x.detach() for n, x in found.items()}, memory


def eager(program, inputs):
    """What `run` gives; None: eager cannot run it, or not on the CPU: a wrong
    index ends the process's GPU."""
    for device in dict.fromkeys(("cpu", helpers.DEVICE.type)):
        try:
            found = run(program, program.function(), inputs, device)
        except (RuntimeError, IndexError, ValueError, TypeError):
            return None
        if not all(is_sound(x) for x in found[0].values() if x is not None):
            return None
    return found


def compare(program, wanted, loose, **how):
    """'' or how the compiled program differs from eager, in some calls."""
    torch._dynamo.reset()
    fn = torch.compile(program.function(), **how)
    for inputs, want in wanted:
        try:
            found, memory = run(program, fn, inputs, helpers.DEVICE)
        except Exception as why:  # noqa: BLE001  whatever a backend raises
            if NOT_YET in str(why):
                return ""
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
    with torch.device("cpu"):
        program = Program(seed, grad, halves=mode == "reduce-overhead")
    return program, mode, {"dynamic": ways.random() < 0.3}


def check(seed):
    """'' or how a program of this seed differs; None: eager cannot run it."""
    program, mode, how = chosen(seed)
    loose = any(x.dtype in HALVES for x in program.values.values())
    first = program.inputs, eager(program, program.inputs)
    other = program.others, eager(program, program.others)
    if first[1] is None:
        return None
    wanted = [first, first] + ([other, first] if other[1] else [])
    said = compare(program, wanted, loose, backend="torchair", mode=mode, **how)
    if not said or compare(program, wanted, loose, backend="aot_eager", **how):
        return ""
    head = f"seed {seed}, {mode}, {how}, gradients {program.grad}"
    return f"{head}: {said}\n{program.text}"


if __name__ == "__main__":
    seeds.main("programs", lambda seed: chosen(seed)[0].text, check)
