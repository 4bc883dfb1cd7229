"""The models of the side-by-side: MODELS[name]() -> Case.

They are written here and in examples/ in plain PyTorch; MiniLM has its real
weights, the others have random ones of the published sizes.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import examples_path  # noqa: F401
import minilm
import tiny_llama as llama
import torch
import torch.nn.functional as F
from torch import nn

F32, BF16 = torch.float32, torch.bfloat16


@dataclass
class Case:
    target: Any  # a module or a function, the thing to compile
    inputs: tuple
    # Training: step(target, compile) gives a function of nothing, which runs
    # forward, backward and optimizer and returns the loss. compile is for what
    # is compiled besides the target.
    step: Callable | None = None
    # A whole run of the target instead of one call: drive(target) does it and
    # gives what is compared.
    drive: Callable | None = None
    # Bytes that a call has to read from memory, where that is what it takes.
    reads: int | None = None
    writes: bool = False  # its inputs or buffers


FIRST = 7919  # elements from the begin of one parameter to that of the next


def fast_build(make, dtype, std=0.02):
    """Built without memory, then filled from one tile of normals.

    Billions of parameters in a second; buffers are left to the caller. Each
    parameter begins elsewhere in the tile: OpenVINO computes layers of equal
    input and weights, as query, key and value would be, only once.
    """
    with torch.device("meta"):
        model = make()
    model.to(dtype).to_empty(device="cpu")
    tile = (torch.randn(1_000_003) * std).to(dtype)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            _fill(parameter, tile.roll(-FIRST * number))
    return model.eval()


def _fill(parameter, tile):
    if parameter.dim() == 1:  # the scale of a norm
        parameter.fill_(1.0)
        return
    flat = parameter.view(-1)
    for start in range(0, flat.numel(), tile.numel()):
        part = flat[start : start + tile.numel()]
        part.copy_(tile[: part.numel()])


# ---- encoders ---------------------------------------------------------------

SENTENCES = (
    "The committee decided, after a long argument about money, to rebuild the "
    "old stone bridge across the river instead of pulling it down.",
    "A compiler takes a program written in one language and turns it into an "
    "equivalent program in another, usually one that a processor can run.",
    "She had packed two shirts, a notebook, half a loaf of bread and the "
    "letter from her brother, and by dawn she was far down the road.",
    "Photosynthesis stores the energy of sunlight in sugar: water is split in "
    "the leaf, and oxygen goes back into the air.",
)


def minilm_case(dtype, batch=8, length=64):
    model, tokenizer = minilm.load(dtype)
    texts = (SENTENCES * batch)[:batch]
    # Twice over, so that the 64 tokens are there.
    texts = [f"{text} {text}" for text in texts]
    return Case(model, minilm.encode(tokenizer, texts, length=length))


def bert_case(dtype, length=128):
    torch.manual_seed(0)
    make = partial(
        minilm.Bert, width=768, layers=12, heads=12, hidden=3072, pool=False
    )
    ids = torch.randint(0, minilm.VOCABULARY, (1, length))
    return Case(fast_build(make, dtype), (ids, torch.ones_like(ids)))


# ---- Llama ------------------------------------------------------------------

LLAMA_15M = llama.Config(32000, 288, 6, 6, 6, 768, 256, base=500000.0)
LLAMA_1B = llama.Config(128256, 2048, 16, 32, 8, 8192, 512, base=500000.0)


def decode_case(config, dtype, position):
    """One token at a position, the cache before it being full."""
    torch.manual_seed(0)
    model = fast_build(lambda: llama.Llama(config), dtype)
    cos, sin = llama.angles(config)
    model.cos, model.sin = cos.to(dtype), sin.to(dtype)
    decoder = llama.Decoder(model)
    for name, cache in decoder.named_buffers():
        if name.startswith(("key", "value")):
            cache[:, :, :position].normal_()
    token = torch.randint(0, config.vocabulary, (1, 1))
    inputs = (token, torch.tensor([position]))
    reads = _decode_reads(decoder, position)
    return Case(decoder, inputs, reads=reads, writes=True)


def _decode_reads(decoder, position):
    """Each weight once, of the embedding a row, of the caches what is full."""
    model, config = decoder.model, decoder.model.config
    weights = sum(p.nbytes for p in model.parameters())
    size = model.embedding.weight.element_size()
    if model.embedding.weight is not model.logits.weight:
        weights -= (config.vocabulary - 1) * config.width * size
    row = config.kv_heads * config.head * size
    return weights + 2 * config.layers * (position + 1) * row


def loop_case(tokens):
    """That many tokens, one after the other, from an empty cache."""
    case = decode_case(LLAMA_15M, F32, 0)
    fed = torch.randint(0, LLAMA_15M.vocabulary, (tokens, 1, 1))
    places = torch.arange(tokens).view(-1, 1)

    def drive(decoder):
        for token, place in zip(fed, places, strict=True):
            logits = decoder(token, place)
        return logits

    case.drive = drive
    return case


# ---- ResNet-50 --------------------------------------------------------------


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *_normed(channels, width, 1),
            nn.ReLU(),
            *_normed(width, width, 3, stride, 1),
            nn.ReLU(),
            *_normed(width, out, 1),
        )
        self.down = None
        if stride != 1 or channels != out:
            self.down = nn.Sequential(*_normed(channels, out, 1, stride))

    def forward(self, x):
        skip = x if self.down is None else self.down(x)
        return F.relu(self.body(x) + skip)


class ResNet50(nn.Module):
    STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))

    def __init__(self):
        super().__init__()
        layers = [*_normed(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, blocks, stride in self.STAGES:
            for i in range(blocks):
                layers.append(
                    Bottleneck(channels, width, stride if i == 0 else 1)
                )
                channels = 4 * width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def _normed(*convolution):
    return (
        nn.Conv2d(*convolution, bias=False),
        nn.BatchNorm2d(convolution[1]),
    )


def resnet_case():
    torch.manual_seed(0)
    model = ResNet50().eval()
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
            norm.weight.data.uniform_(0.5, 1.0)
    return Case(model, (torch.randn(1, 3, 224, 224),))


# ---- training ---------------------------------------------------------------


class SimpleMLP(nn.Module):
    """Its forward is the loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(784, 512),
            nn.ReLU(),
            nn.Linear(512, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def forward(self, x, labels):
        return F.cross_entropy(self.layers(x), labels)


class Gpt(nn.Module):
    """A Llama block stack with its loss: the four-layer GPT of the tests."""

    def __init__(self, config=None):
        super().__init__()
        self.model = llama.Llama(config or llama.Config(layers=4))

    def forward(self, tokens):
        return self.model.loss(tokens)


def training_case(model, batches, optimizer, whole):
    """Another batch each step: on one, a loss falls to its rounding error.
    whole: the optimizer's step is compiled, too."""

    def step(target, compile=None):
        rule = optimizer(model.parameters())
        update = compile(rule.step) if whole else rule.step
        source = itertools.cycle(batches)

        def run():
            rule.zero_grad(set_to_none=True)
            loss = target(*next(source))
            loss.backward()
            update()
            return loss.detach()

        return run

    return Case(model, batches[0], step)


def mlp_training(whole=False):
    torch.manual_seed(0)
    adam = partial(torch.optim.Adam, lr=1e-3)
    teacher = torch.randn(784, 10)
    images = torch.randn(50, 64, 784)
    batches = [(x, (x @ teacher).argmax(-1)) for x in images]
    return training_case(SimpleMLP(), batches, adam, whole)


def gpt_training(whole=False):
    torch.manual_seed(0)
    adamw = partial(torch.optim.AdamW, lr=1e-3)
    batches = [(tokens,) for tokens in torch.randint(0, 256, (50, 8, 65))]
    return training_case(Gpt(), batches, adamw, whole)


# ---- what a call costs ------------------------------------------------------


class ManyParameters(nn.Module):
    """144 parameters in 12 layers, next to no arithmetic."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(12))
            for _ in range(12)
        )

    def forward(self, x):
        for layer in self.layers:
            for parameter in layer:
                x = x + parameter
        return x


def many_parameters():
    torch.manual_seed(0)
    return Case(ManyParameters().eval(), (torch.randn(8),))


# ---- functions --------------------------------------------------------------


def tiny(x, y):
    return torch.relu(x + y) * 2


def cached(cache, x, at):
    cache.index_copy_(0, at, x)
    return cache.sum(0)


def cached_case():
    x, at = torch.randn(1, 8), torch.tensor([3])
    return Case(cached, (torch.zeros(8, 8), x, at), writes=True)


def chain(x, a, b):
    return F.gelu(x * a + b) * torch.sigmoid(x) + x


def norm_residual(x, r, w, b):
    return F.layer_norm(x + r, (1024,), w, b) + r


def softmax(x):
    return torch.softmax(x, -1)


def function_case(function, *shapes):
    torch.manual_seed(0)
    return Case(function, tuple(torch.randn(shape) for shape in shapes))


MODELS = {
    "tiny-64": partial(function_case, tiny, 64, 64),
    "tiny-cache": cached_case,
    "params-144": many_parameters,
    "chain-4096": partial(function_case, chain, (4, 1024), 1024, 1024),
    "chain-16M": partial(function_case, chain, (16384, 1024), 1024, 1024),
    "lnres-4096x1024": partial(
        function_case, norm_residual, (4096, 1024), (4096, 1024), 1024, 1024
    ),
    "softmax-4096x1024": partial(function_case, softmax, (4096, 1024)),
    "mlp-train": mlp_training,
    "gpt-train": gpt_training,
    "mlp-train-update": partial(mlp_training, whole=True),
    "gpt-train-update": partial(gpt_training, whole=True),
    "llama-15m-decode": partial(decode_case, LLAMA_15M, F32, 100),
    "llama-15m-200-tokens": partial(loop_case, 200),
    "llama-1b-decode": partial(decode_case, LLAMA_1B, BF16, 200),
    "minilm-f32": partial(minilm_case, F32),
    "minilm-bf16": partial(minilm_case, BF16),
    "bert-f32": partial(bert_case, F32),
    "resnet50": resnet_case,
}
