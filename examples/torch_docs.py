"""The text every user of PyTorch has: the docstrings of the installed torch.

entries()   a list of Entry(name, text), one per public function or class
lines()     "name: first sentence" of those, for training a language model
"""

import importlib
import inspect
import re
import warnings
from typing import NamedTuple

MODULES = """
    torch torch.Tensor torch.nn torch.nn.functional torch.nn.init torch.nn.utils
    torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.attention
    torch.linalg torch.fft torch.special torch.signal.windows torch.sparse
    torch.masked torch.nested torch.optim torch.optim.lr_scheduler
    torch.autograd torch.func torch.distributions torch.utils.data torch.amp
    torch.random torch.fx torch.jit torch.export torch.library torch.compiler
    torch.profiler torch.hub torch.futures torch.serialization torch.testing
    torch.utils.checkpoint torch.utils.benchmark torch.accelerator
"""

SHORTEST = 40  # characters of text that say more than "See torch.x"


class Entry(NamedTuple):
    name: str  # "torch.nn.functional.pad"
    text: str  # its docstring, indentation removed


def entries():
    """One entry per public object with a docstring of its own, by name."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated names warn when touched
        for module in MODULES.split():
            for name, text in _documented(module):
                found.setdefault(text, Entry(name, text))
    return sorted(found.values())


def lines(longest=160):
    """What each object is for, a line each; lines that run on are left out."""
    found = (f"{e.name}: {sentence(e.text)}\n" for e in entries())
    return [line for line in found if len(line) <= longest]


def plain(text):
    """reStructuredText with its markup taken off."""
    text = re.sub(r"\.\. math::\n((?:\n|[ \t].*\n)*)", "", text + "\n")
    text = re.sub(r":[\w:]+:`~?([^`<]*?)(?:\s*<[^`]*>)?`", r"\1", text)
    text = re.sub(r"^\s*\.\. (?:\w+::|_).*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`+|\*\*", "", text).strip()


def summary(text):
    """The paragraphs before the argument list: what the object is for."""
    text = re.split(
        r"\n\s*(?:Args|Arguments|Keyword args|Returns|Example|"
        r"Examples|Parameters|Shape)\s*:",
        plain(text),
    )[0]
    text = re.sub(r"\A[\w.]+\(.*\) -> .*", "", text)  # the signature line
    return re.sub(r"\s+", " ", text).strip()


def sentence(text):
    """The first sentence of the summary."""
    return re.split(r"(?<=[.!?]) ", summary(text), maxsplit=1)[0]


def _documented(module):
    owner = _find(module)
    for name in sorted(dir(owner)):
        if name.startswith("_"):
            continue
        thing = getattr(owner, name, None)
        if not _belongs_to_torch(thing):
            continue
        text = thing.__doc__
        if not isinstance(text, str) or _is_reference(text):
            continue
        yield f"{module}.{name}", inspect.cleandoc(text)


def _find(path):
    try:
        return importlib.import_module(path)
    except ImportError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name, None)


def _belongs_to_torch(thing):
    if not callable(thing) and not inspect.isgetsetdescriptor(thing):
        return False
    home = getattr(thing, "__module__", None) or "torch"
    return home.split(".")[0] == "torch"


def _is_reference(text):
    """ "See :func:`torch.x`", "In-place version of ...": nothing to find."""
    return (
        len(
            re.sub(
                r"[^\n]*\) -> [^\n]*|In-place version of.*|"
                r"See :func:.*|Alias (?:of|for).*",
                "",
                text,
                flags=re.IGNORECASE,
            ).strip()
        )
        < SHORTEST
    )


if __name__ == "__main__":
    found = entries()
    size = sum(len(e.text) for e in found)
    print(f"{len(found)} entries, {size / 1e6:.2f} MB")
