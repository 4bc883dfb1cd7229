"""Eager against compiled."""

import contextlib
import threading

import torch
from device_expect import LACKING

import torchair
from torchair import backend

# torch before 2.13 draws halves of its own bits, cannot compute attention of
# float64 (its Meta function names another dtype) nor the trace of halves, and
# does not look at the size of a parameter again.
_VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
BEFORE_213 = _VERSION < (2, 13)
BEFORE_215 = _VERSION < (2, 15)

# Of --device, see conftest.py: for tensors made when a file is imported, and
# inside of compiled functions, where torch 2.11 looks at no default device.
DEVICE = torch.device("cpu")

TEXT_PASSES = 8  # Program.text: air_text_kind of air.h

TOLERANCE = {
    torch.float64: (1e-9, 1e-9),
    torch.float32: (2e-5, 2e-5),
    torch.complex64: (2e-5, 2e-5),
    torch.bfloat16: (3e-2, 3e-2),
    torch.float16: (4e-3, 4e-3),
}


def make_backend(mode="max-autotune", **options):
    config = torchair.CompilerConfig()
    config.mode = mode
    for path, value in options.items():
        setattr(config, path, value)
    return torchair.get_npu_backend(compiler_config=config)


def compiled(fn, mode="max-autotune", **kwargs):
    return torch.compile(fn, backend=make_backend(mode), **kwargs)


def assert_same(got, want):
    """Values, dtypes, shapes and strides."""
    assert type(got) is type(want) or isinstance(want, torch.Tensor)
    if isinstance(want, torch.Tensor):
        rtol, atol = TOLERANCE.get(want.dtype, (0, 0))
        torch.testing.assert_close(
            got, want, rtol=rtol, atol=atol, equal_nan=True
        )
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        for k in want:
            assert_same(got[k], want[k])
    else:
        assert got == want


def seeded(seed, device=None):
    """A generator of the device on which tests make their tensors; DEVICE:
    while a file is imported."""
    made = torch.Generator(device or torch.get_default_device())
    return made.manual_seed(seed)


def copy_of(x):
    if isinstance(x, torch.Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    if isinstance(x, (tuple, list)):
        return type(x)(copy_of(y) for y in x)
    if isinstance(x, dict):
        return {k: copy_of(v) for k, v in x.items()}
    return x


def check(fn, *args, mode="max-autotune", **kwargs):
    """Runs both on copies; compares results and what became of the inputs."""
    mine, theirs = copy_of(args), copy_of(args)
    want = fn(*theirs)
    got = compiled(fn, mode, **kwargs)(*mine)
    assert_same(got, want)
    assert_same(mine, theirs)
    return got


@contextlib.contextmanager
def recorded():
    """The records of what is compiled inside."""
    found, programs = [], []
    with backend.collect(found, programs):
        yield found


def hosts(records):
    """Operators of HOST nodes, but for those of which a GPU has no kernel."""
    return without_lacking(h.op for r in records for h in r.hosts)


def without_lacking(operators):
    lacking = LACKING.get(DEVICE.type, {})
    return [op for op in operators if op not in lacking]


def fallbacks(records):
    return [r.fallback for r in records if r.fallback]


def in_threads(items, work):
    """work(item) for all items at once; raises the first failure. Tensors are
    made where this thread makes them, which torch keeps for each thread."""
    failures = []
    device = torch.get_default_device()

    def body(item):
        try:
            if device.type != "cpu":
                torch.set_default_device(device)
            work(item)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in items]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0]
