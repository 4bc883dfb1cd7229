"""Random networks of torch.nn: what compiled ones give and learn is what
eager's do, in some steps of training, and in evaluation behind them.

    python tests/python/networks.py FIRST SECONDS [DEVICE]   from FIRST on
    python tests/python/networks.py FIRST            this one, with its text

A network reads images, tokens or rows, has up to 12 layers, some of them
beside what they read, a loss and an optimizer. A layer that eager refuses is
left out. Numbers may be off by some times what eager's are with parameters and
inputs that are off by a rounding, or what a GPU's eager is off from the CPU's
(norms of weights of float64 by 1e-8). What torch's own aot_eager does otherwise
than eager is not ours.
"""

import random
import warnings

import helpers
import seeds
import torch
import torch.nn.functional as F
from helpers import seeded
from torch import nn
from torch.utils.checkpoint import checkpoint

MODES = ("max-autotune", "reduce-overhead")
STEPS, CLASSES = 3, 4
MOST_ELEMENTS, LARGEST = 20000, 1e3
# Of the largest number: what may be off beside some times what a rounding does.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 2e-5}
ROUNDINGS, DRAWS = 20, 3  # of what is off by a rounding
CHAOS = 0.05  # where a rounding makes that much, numbers tell nothing
REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, AssertionError)

# {c}: channels or features there, {d}: others, {k}: 1, 2 or 3
IMAGES = """
nn.Conv2d({c}, {d}, 3, padding=1) | nn.Conv2d({c}, {d}, {k}, 2, bias=False)
nn.Conv2d({c}, {c}, 3, padding=1, groups={c}) | nn.Conv2d({c}, {d}, {k})
nn.Conv2d({c}, {d}, 3, padding=2, dilation=2, padding_mode='reflect')
nn.Conv2d({c}, {d}, (1, {k}), padding='same') | nn.Conv2d({c}, {d}, 1)
nn.Conv2d({c}, {c} * 2, {k}, groups={c}, padding=1)
nn.Conv2d({c}, {d}, 5, 3, 2) | nn.ConvTranspose2d({c}, {d}, 3, 2, 1, 1)
nn.ConvTranspose2d({c}, {c}, {k}, groups={c}) | nn.LazyConv2d({d}, {k})
nn.ConvTranspose2d({c}, {d}, 2, 2) | weight_norm(nn.Conv2d({c}, {d}, {k}))
nn.BatchNorm2d({c}) | nn.BatchNorm2d({c}, momentum=None) | nn.GroupNorm(1, {c})
nn.BatchNorm2d({c}, affine=False) | nn.GroupNorm({c}, {c}, eps=0.1)
nn.BatchNorm2d({c}, track_running_stats=False) | nn.InstanceNorm2d({c}, 0.1)
nn.InstanceNorm2d({c}, 0.1, affine=True, track_running_stats=True)
nn.MaxPool2d({k}) | nn.MaxPool2d(3, 2, 1) | nn.AvgPool2d(3, 2, 1, False, False)
nn.MaxPool2d(2, 2, ceil_mode=True) | nn.AvgPool2d({k}, ceil_mode=True)
nn.AdaptiveAvgPool2d({k}) | nn.AdaptiveMaxPool2d({k}) | nn.LPPool2d(2, {k})
nn.AdaptiveAvgPool2d(({k}, None)) | nn.Upsample(scale_factor=2)
nn.Upsample(scale_factor=2, mode='bilinear') | nn.PixelShuffle(2)
nn.Upsample(size=5, mode='bicubic') | nn.ReflectionPad2d(1) | nn.ZeroPad2d(1)
nn.Upsample(size=(3, 7), mode='bilinear', align_corners=True) | nn.Flatten(2, 3)
nn.PixelUnshuffle(2) | nn.PReLU({c}) | nn.ReplicationPad2d((1, 0, 2, 1))
nn.CircularPad2d(1) | nn.ConstantPad2d(1, 0.5) | nn.LocalResponseNorm(2)
nn.Softmax2d() | nn.ChannelShuffle(2) | nn.Fold(3, 2) | nn.Unfold(2)
nn.Dropout2d(0.0) | nn.Flatten() | nn.Flatten(2) | nn.Hardswish()
x: x.flatten(2).transpose(1, 2) | x: x.permute(0, 2, 3, 1).flatten(1, 2)
x: x.mean((2, 3)) | x: x.amax((-1, -2)) | x: x.flip(3) + x.roll(1, 2)
x: torch.cat([x, x.square()], 1) | x: x[:, :, ::2, 1:]
x: x.sigmoid() * x.mean((2, 3), keepdim=True) | Again(nn.Conv2d({c}, {c}, 1))
x: x.to(memory_format=torch.channels_last)
x: sampled(x)
"""
ROWS = """
nn.Linear({c}, {d}) | nn.Linear({c}, {d}, bias=False) | nn.LayerNorm({c})
nn.RMSNorm({c}, eps=0.1) | nn.LayerNorm({c}, elementwise_affine=False)
nn.LayerNorm({c}, bias=False) | x: x.softmax(-1) | nn.GLU() | nn.Identity()
weight_norm(nn.Linear({c}, {d})) | Again(nn.Linear({c}, {c}))
Gated(nn.Linear({c}, {d}), nn.Linear({c}, {d})) | x: F.normalize(x, 2, -1)
x: torch.cat([x, -x], -1) | x: x[..., ::2] * 2 | x: x.cumsum(-1)
x: x - x.mean(-1, keepdim=True) | x: x @ x.transpose(-1, -2) @ x * 0.1
x: x.sort(-1)[0] | x: x.log_softmax(-1) | x: x.topk(2, -1)[0]
Saved(nn.Sequential(nn.Linear({c}, {d}), nn.GELU(), nn.Linear({d}, {c})))
"""
SEQUENCES = """
First(nn.LSTM({c}, {d}, batch_first=True)) | First(nn.GRU({c}, {d}))
First(nn.RNN({c}, {d}, 2, nonlinearity='relu', batch_first=True))
First(nn.GRU({c}, {d}, bidirectional=True, batch_first=True, bias=False))
First(nn.LSTM({c}, {d}, 2, batch_first=True, proj_size=1))
nn.TransformerEncoderLayer({c}, 1, {d}, 0.0, batch_first=True)
nn.TransformerEncoderLayer({c}, {k}, {d}, 0.0, 'gelu', norm_first=True)
Attended(nn.MultiheadAttention({c}, {k}, batch_first=True))
Attended(nn.MultiheadAttention({c}, 1, bias=False, add_zero_attn=True))
Attended(nn.MultiheadAttention({c}, 1, add_bias_kv=True))
Causal({c}) | Rotary() | Across(nn.Conv1d({c}, {d}, {k}))
Across(nn.Conv1d({c}, {c}, 3, padding=1, groups={c})) | nn.Flatten()
Across(nn.ConvTranspose1d({c}, {d}, {k}, 2)) | Across(nn.MaxPool1d(2))
Across(nn.AvgPool1d(2, 1)) | Across(nn.AdaptiveMaxPool1d(2))
Across(nn.InstanceNorm1d({c}, 0.1)) | Across(nn.Upsample(scale_factor=2))
Across(nn.Upsample(size=5, mode='linear')) | Across(nn.GroupNorm(1, {c}))
Across(nn.PReLU({c})) | Across(nn.BatchNorm1d({c})) | Experts({c}, {d})
x: x.mean(1) | x: x[:, -1] | x: x.amax(1) | x: x.logsumexp(1)
x: x[:, 1:] - x[:, :-1] | x: x.unflatten(1, (1, -1)) | x: x.tril()
x: torch.einsum('btc,bsc->bts', x, x) * 0.1
"""
FLAT = """
nn.BatchNorm1d({c}) | nn.BatchNorm1d({c}, eps=0.1, momentum=0.5) | nn.PReLU()
Twice(nn.Bilinear({c}, {c}, {d})) | spectral_norm(nn.Linear({c}, {d}))
nn.Unflatten(1, (1, -1)) | x: x.unsqueeze(1).expand(-1, 3, -1)
x: x[:, :, None, None].expand(-1, -1, 3, 3) | nn.MaxPool1d(2)
x: torch.cdist(x, x + 1) | nn.AvgPool1d(2)
"""
POINTWISE = """
nn.ReLU() | nn.GELU() | nn.GELU('tanh') | nn.SiLU() | nn.Tanh() | nn.Sigmoid()
nn.ELU() | nn.Softplus() | nn.LeakyReLU(0.1) | nn.Mish() | nn.ReLU(inplace=True)
nn.Hardtanh() | nn.ReLU6() | nn.SELU() | nn.LogSigmoid() | nn.Dropout(0.0)
nn.Softshrink() | nn.CELU() | nn.SiLU(inplace=True) | nn.Softsign()
"""
# y: what the network gives, z: that, turned, without gradients; t: classes,
# h: rows of zeros and a one; w: weights of classes
LOSSES = """
F.cross_entropy(y, t) | F.cross_entropy(y, t, label_smoothing=0.1)
F.cross_entropy(y, t, weight=w, ignore_index=1) | F.mse_loss(y, h)
F.cross_entropy(y, t, reduction='sum') | F.nll_loss(y.log_softmax(1), t, w)
F.binary_cross_entropy_with_logits(y, h, pos_weight=w) | F.smooth_l1_loss(y, h)
F.multi_margin_loss(y, t) | F.binary_cross_entropy(y.sigmoid(), h)
F.kl_div(y.log_softmax(1), z.softmax(1), reduction='batchmean')
F.huber_loss(y, z) | F.l1_loss(y, h) | y.square().mean()
F.triplet_margin_loss(y, y.roll(1, 0), z) | F.gaussian_nll_loss(y, z, y.exp())
F.cross_entropy(y, z.softmax(1)) | F.soft_margin_loss(y, h * 2 - 1)
F.cosine_embedding_loss(y, z, t * 0 + 1) | F.poisson_nll_loss(y, h)
"""
OPTIMIZERS = """
SGD(p, 0.1) | SGD(p, 0.1, momentum=0.9, nesterov=True) | AdamW(p, 0.01)
SGD(p, 0.1, momentum=0.5, weight_decay=0.1, dampening=0.1) | Adam(p, 0.01)
AdamW(p, 0.01, foreach=True) | RMSprop(p, 0.01, momentum=0.9, centered=True)
Adagrad(p, 0.1) | Adadelta(p) | NAdam(p) | RAdam(p) | Adamax(p)
Adam(p, 0.01, amsgrad=True)
"""
STARTS = """
image: nn.Identity() | tokens: nn.Embedding(11, {d}) | rows: nn.Identity()
tokens: nn.Embedding(11, {d}, padding_idx=2) | tokens: nn.EmbeddingBag(11, {d})
tokens: nn.EmbeddingBag(11, {d}, mode='max') | image: nn.Identity()
tokens: nn.Embedding(11, {d}, scale_grad_by_freq=True)
"""


def table(text):
    rows = text.strip().splitlines()
    return [t.strip() for row in rows for t in row.split(" | ")]


LAYERS = {
    4: table(IMAGES) + table(POINTWISE)[:12],
    3: table(SEQUENCES) + table(ROWS) + table(POINTWISE)[:12],
    2: table(FLAT) + table(ROWS) + table(POINTWISE)[:12],
}


def sampled(x):
    """At places that its first channel says."""
    at = x[:, 0, :, :, None].tanh().expand(-1, -1, -1, 2)
    return F.grid_sample(x, at, align_corners=True)


class Do(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


class Around(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)


class First(Around):
    def forward(self, x):
        return self.layers[0](x)[0]


class Again(Around):
    """One layer's weights at two places."""

    def forward(self, x):
        return self.layers[0](torch.tanh(self.layers[0](x)))


class Gated(Around):
    def forward(self, x):
        return F.silu(self.layers[0](x)) * self.layers[1](x)


class Twice(Around):
    def forward(self, x):
        return self.layers[0](x, x.sin())


class Across(Around):
    """What wants channels before positions."""

    def forward(self, x):
        return self.layers[0](x.transpose(1, 2)).transpose(1, 2)


class Attended(Around):
    def forward(self, x):
        return self.layers[0](x, x, x, need_weights=False)[0]


class Saved(Around):
    """Computed again in the backward pass."""

    def forward(self, x):
        return checkpoint(self.layers[0], x, use_reentrant=False)


class Beside(Around):
    def forward(self, x):
        return x + self.layers[0](x)


class Causal(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.qkv = nn.Linear(n, 3 * n)

    def forward(self, x):
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.squeeze(1)


class Rotary(nn.Module):
    def forward(self, x):
        half = x.shape[-1] // 2
        at = torch.arange(x.shape[1]).to(x).unsqueeze(1)
        angle = at / 10 ** (torch.arange(half).to(x) / half)
        a, b = x.chunk(2, -1)
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class Experts(nn.Module):
    """Each token through the one expert of two that its gate picks."""

    def __init__(self, n, d):
        super().__init__()
        self.gate = nn.Linear(n, 2)
        self.weight = nn.Parameter(torch.randn(2, n, d) * 0.3)

    def forward(self, x):
        factor, which = self.gate(x).softmax(-1).max(-1)
        y = torch.einsum("btc,ecd->bted", x, self.weight)
        at = which[..., None, None].expand(*which.shape, 1, y.shape[-1])
        return y.gather(2, at).squeeze(2) * factor[..., None]


OWN = (Do, First, Again, Gated, Twice, Across, Attended, Saved, Beside, Causal)
NAMES = {c.__name__: c for c in (*OWN, Rotary, Experts, sampled)} | {
    "weight_norm": nn.utils.parametrizations.weight_norm,
    "spectral_norm": nn.utils.parametrizations.spectral_norm,
    "nn": nn,
    "torch": torch,
    "F": F,
}


class Network:
    """text: of its layers, its loss and its optimizer."""

    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.dtype = self.random.choice((torch.float64, torch.float32))
        self.rows = self.random.choice((2, 3, 4, 5, 8))
        self.kind, first = self.random.choice(table(STARTS)).split(": ")
        self.size = self.random.choices((3, 4, 5, 7, 8, 9), k=3)
        self.layers = [first.format(d=self.random.choice((2, 4, 6)))]
        self.x = self.run(self.layers[0], self.input(0, self.rows))
        for _ in range(self.random.choice((2, 4, 7, 12))):
            self.layer()
        if self.x.dim() > 2:
            self.take("nn.Flatten()")
        self.take(f"nn.Linear({self.x.shape[1]}, {CLASSES})")
        self.loss = self.random.choice(table(LOSSES))
        self.optimizer = self.random.choice(table(OPTIMIZERS))
        self.clip = self.random.random() < 0.2
        self.frozen = self.random.random() < 0.2
        lines = "".join(f"    {t},\n" for t in self.layers)
        self.text = (
            f"{self.kind} {self.rows} x {self.size}, {self.dtype}\n"
            f"nn.Sequential(\n{lines})\n{self.loss}\n{self.optimizer}, "
            f"clip {self.clip}, frozen {self.frozen}\n"
        )

    def input(self, step, rows):
        made = seeded(self.seed * 8 + step, "cpu")
        c, h, w = self.size
        if self.kind == "tokens":
            return torch.randint(11, (rows, h), generator=made)
        size = (rows, c, h, w) if self.kind == "image" else (rows, c)
        return torch.randn(size, dtype=self.dtype, generator=made)

    def run(self, text, x):
        torch.manual_seed(self.seed)
        with torch.no_grad():
            return eval(text, NAMES).to(self.dtype)(x)

    def take(self, text):
        """One more layer; none where eager refuses it."""
        try:
            y = self.run(text, self.x)
        except REFUSALS:
            return
        if not isinstance(y, torch.Tensor) or y.dim() not in LAYERS:
            return
        if not 0 < y.numel() < MOST_ELEMENTS or not bool(y.isfinite().all()):
            return
        if y.shape[0] == self.rows and 0 < y.abs().max() < LARGEST:
            self.layers.append(text)
            self.x = y

    def layer(self):
        text = self.random.choice(LAYERS[self.x.dim()])
        text = f"Do(lambda {text})" if text.startswith("x:") else text
        text = text.format(
            c=self.x.shape[1 if self.x.dim() == 4 else -1],
            d=self.random.choice((2, 3, 4, 6, 8)),
            k=self.random.choice((1, 2, 3)),
        )
        if self.random.random() < 0.25:
            text = f"Beside({text})"
        self.take(text)

    def rounded(self, x, draw):
        """draw: which numbers are off by a rounding; 0: none."""
        if draw == 0 or not x.is_floating_point():
            return x
        made = seeded(self.seed * DRAWS + draw, "cpu")
        noise = torch.randn(x.shape, dtype=x.dtype, generator=made)
        return x * (1 + noise * torch.finfo(x.dtype).eps)

    def module(self, draw):
        torch.manual_seed(self.seed)
        net = nn.Sequential(*(eval(t, NAMES) for t in self.layers))
        net.to(self.dtype)
        with torch.no_grad():
            net(self.input(0, self.rows))  # lazy layers' parameters
            for p in net.parameters():
                p.copy_(self.rounded(p, draw))
        if self.frozen:
            for p in list(net.parameters())[::3]:
                p.requires_grad_(False)
        return net


class Training:
    """Of a network on a device; draw: of what is rounded in it and in what it
    reads; how: "net" or "loss", which is what `compile` is called of."""

    def __init__(self, network, draw, device, how, compile):
        self.network, self.how, self.device = network, how, device
        self.draw, self.net = draw, network.module(draw).to(device)
        self.free = [p for p in self.net.parameters() if p.requires_grad]
        names = {"p": self.free, **vars(torch.optim)}
        self.optimizer = eval(network.optimizer, names)
        self.weight = torch.linspace(0.5, 2, CLASSES, dtype=network.dtype)
        self.weight = self.weight.to(device)
        self.formula = eval(f"lambda y, z, t, h, w: {network.loss}", {"F": F})
        self.forward = compile(self.net) if how == "net" else self.net
        self.loss = compile(self.whole) if how == "loss" else self.whole
        self.update = self.optimizer.step
        if how == "loss":
            self.update = compile(self.optimizer.step)

    def whole(self, x, t):
        y = self.forward(x)
        h = F.one_hot(t, CLASSES).to(y)
        return self.formula(y, y.detach().roll(1, 1), t, h, self.weight)

    def input(self, i, n):
        x = self.network.input(i, n)
        return self.network.rounded(x, self.draw).to(self.device)

    def step(self, i, n):
        x = self.input(i, n)
        loss = self.loss(x, torch.arange(n, device=self.device) % CLASSES)
        loss.backward()
        if self.network.clip:
            nn.utils.clip_grad_norm_(self.free, 0.1)
        found = {f"loss {i}": loss.detach().clone()}
        for name, p in self.net.named_parameters():
            if p.grad is not None:
                found[f"step {i}, gradient of {name}"] = p.grad.clone()
        self.update()
        self.optimizer.zero_grad()
        return found

    def run(self, rows):
        """What steps of so many rows give and leave, by what it is."""
        found = {}
        for i, n in enumerate(rows):
            found |= self.step(i, n)
        self.net.eval()
        with torch.no_grad():
            found["evaluated"] = self.forward(self.input(9, rows[0])).clone()
        state = self.net.state_dict()
        return found | {f"state {n}": x.clone() for n, x in state.items()}


def distance(got, want):
    """By the largest number; infinite where one has none."""
    if got.shape != want.shape:
        return float("inf")
    if want.numel() == 0:
        return 0.0
    got, want = got.to(want).double(), want.double()
    scale = max(want.abs().max().item(), 1e-3)
    return (got - want).abs().max().item() / scale


def strides(x):
    """Of axes that have one."""
    return [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]


def difference(found, want, near, dtype):
    """'' or what differs by more than a rounding makes of it. near: found by
    others that are as good as want."""
    for name, x in want.items():
        y = found.get(name)
        if y is None:
            return f"{name}: none"
        if (y.dtype, strides(y)) != (x.dtype, strides(x)):
            return f"{name}: {y.dtype}{y.stride()}, not {x.dtype}{x.stride()}"
        rounding = max(distance(other[name], x) for other in near)
        allowed = TOLERANCE[dtype] + ROUNDINGS * rounding
        if rounding < CHAOS and not distance(y, x) <= allowed:
            return f"{name}: off by {distance(y, x):.1e}, not {allowed:.1e}"
    return ""


def chosen(seed):
    """A network, its mode, what is compiled of it, rows and how."""
    ways = random.Random(~seed)
    network = Network(seed)
    mode, what = ways.choice(MODES), ways.choice(("net", "loss"))
    rows = [network.rows] * STEPS
    if ways.random() < 0.4:
        rows[1] += ways.choice((-1, 1, 3))
    return network, mode, what, rows, {"dynamic": ways.choice((None, True))}


def check(seed):
    """'' or how a network of this seed differs; None: eager cannot train it."""
    with torch.device("cpu"):
        network, mode, what, rows, how = chosen(seed)

    def run(compile=lambda fn: fn, draw=0, device=helpers.DEVICE):
        torch._dynamo.reset()
        exact = torch.backends.cudnn.flags(allow_tf32=False)
        with torch.device("cpu"), exact:
            made = Training(network, draw, device, what, compile)
            return made.run(rows)

    def compared(**kwargs):
        try:
            found = run(lambda fn: torch.compile(fn, **kwargs))
        except Exception as why:  # noqa: BLE001  whatever a backend raises
            return f"{type(why).__name__}: {why}"
        return difference(found, want, near, network.dtype)

    try:
        want = run()
        near = [run(draw=1 + i) for i in range(DRAWS)]
        if helpers.DEVICE.type != "cpu":
            near.append(run(device=torch.device("cpu")))
    except REFUSALS:
        return None
    if not all(x.isfinite().all() for x in want.values()):
        return None
    said = compared(backend="torchair", mode=mode, **how)
    if not said or compared(backend="aot_eager", **how):
        return ""
    head = f"seed {seed}, {mode}, {what} compiled, rows {rows}, {how}"
    return f"{head}: {said}\n{network.text}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    seeds.main("networks", lambda seed: chosen(seed)[0].text, check)
