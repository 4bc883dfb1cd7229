"""Programs that are watched: every value that is shown is the FX node's."""

import pytest
import torch
from helpers import compiled

from torchair import backend


def steps_of(fn, *args, mode="max-autotune"):
    """What a watched run of the only graph shows, values cloned."""
    found, programs = [], []
    run = compiled(fn, mode)
    with backend.collect(found, programs):
        want = run(*args)
    (program,) = programs
    shown = []

    def watch(index, kind, label, done, once, seconds, values):
        kept = tuple((*v[:4], v[4].clone()) for v in values)
        assert not once
        shown.append((index, kind, label, done, seconds, kept))

    program.watch = watch
    got = run(*args)
    program.watch = None
    assert torch.equal(got, want)
    run(*args)
    return shown


def chain(x, w):
    y = torch.relu(x @ w) + 1
    return y.flip(0).view(-1) * 2


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_steps_and_their_values(mode):
    x, w = torch.randn(4, 8), torch.randn(8, 16)
    shown = steps_of(chain, x, w, mode=mode)
    assert [(s[1], s[3]) for s in shown[:2]] == [
        ("call", False),
        ("call", True),
    ]
    assert [s[0] for s in shown] == sorted(s[0] for s in shown)
    values = {tag: v for s in shown if s[3] for v in s[5] for tag in v[3]}
    torch.testing.assert_close(values["mm"][4], x @ w)
    assert values["mm"][2].startswith("test_watch.py:")
    torch.testing.assert_close(
        values["flip"][4], (torch.relu(x @ w) + 1).flip(0)
    )
    assert sum(s[4] > 0 for s in shown) == sum(
        s[3] and s[1] != "view" for s in shown
    )


def test_lines_are_the_users_where_a_default_device_is_set():
    torch.set_default_device("cpu")  # conftest.py takes it back
    shown = steps_of(chain, torch.randn(4, 8), torch.randn(8, 16))
    found = {v[2] for s in shown if s[3] for v in s[5]}
    assert found and all(at.startswith("test_watch.py:") for at in found)


def test_operands_are_shown_before():
    x, w = torch.randn(4, 8), torch.randn(8, 16)
    shown = steps_of(chain, x, w)
    first = {v[0]: v[4] for v in shown[0][5]}
    assert sorted(first) == ["w", "x"]
    assert any(torch.equal(v, x) for v in first.values())


def test_an_exception_of_the_watcher_is_raised():
    found, programs = [], []
    run = compiled(chain)
    args = torch.randn(4, 8), torch.randn(8, 16)
    with backend.collect(found, programs):
        want = run(*args)

    def watch(*_):
        raise LookupError("enough")

    programs[0].watch = watch
    with pytest.raises(LookupError, match="enough"):
        run(*args)
    programs[0].watch = None
    assert torch.equal(run(*args), want)
