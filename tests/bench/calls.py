"""What a call of compiled code costs, taken apart: microseconds.

whole     the call as the user writes it
guards    Dynamo's guard tree, asked as often as the call asks it
code      what Dynamo generated around the graph, the graph called not at all;
          0 where the dispatcher does without it
result    what a second result of the same kind adds: a tensor and its kernel
own       the rest: bookkeeping, ours
"""

import time
import timeit

import models
import torch
from backends import BACKENDS

CASES = ("tiny-64", "params-144")
TURN = 3e-4  # seconds of one kind of call in a row; the shortest turn counts


def two_results(x, y):
    return models.tiny(x, y), torch.relu(x - y) * 2


class TwoOfMany(models.ManyParameters):
    def forward(self, x):
        y = super().forward(x)
        return y, y * 2


# The case's target, with another result.
SECOND = {"tiny-64": lambda: two_results, "params-144": TwoOfMany}


def parts(name, backend, seconds):
    case = models.MODELS[name]()
    with torch.no_grad():
        best = _shortest(
            _calls(case, SECOND[name](), BACKENDS[backend]), seconds
        )
    result = best.pop("second") - best["whole"]
    known = best["guards"] + best.get("code", 0.0) + result
    return best | {"result": result, "own": best["whole"] - known}


def _calls(case, second, compile):
    """name -> (call, arguments)."""
    found = {
        "eager": case.target,
        "whole": _compiled(compile, case.target, case.inputs),
        "second": _compiled(compile, second, case.inputs),
    }
    calls = {name: (call, case.inputs) for name, call in found.items()}
    return calls | _inner(case)


def _compiled(compile, target, inputs):
    found = compile(target, dynamic=False)
    for _ in range(3):
        found(*inputs)
    return found


def _inner(case):
    """Guards and generated code of the case, with their arguments."""
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    from torchair import dispatch

    is_module = isinstance(case.target, torch.nn.Module)
    target = dispatch._Target(
        case.target.__call__ if is_module else case.target
    )
    code = target.function.__code__
    (entry,) = _debug_get_cache_entry_list(code)
    arguments = (case.target,) * is_module + case.inputs
    scope = dict(zip(code.co_varnames, arguments, strict=False))
    calls = {"guards": (entry.guard_manager.root.check, (scope,))}
    call, bare = dispatch._generated(target, entry)
    if bare is None:
        # A function of C that takes anything: its result has an item too.
        call.__globals__[call.__code__.co_names[-1]] = "nothing".format
        calls["code"] = call, arguments
    return calls


def _shortest(calls, seconds):
    """name -> microseconds; the calls take turns."""
    timers = [_Timer(call, arguments) for call, arguments in calls.values()]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for timer in timers:
            timer.turn()
    return dict(zip(calls, (t.best * 1e6 for t in timers), strict=True))


class _Timer:
    """The shortest seconds of a call in any turn."""

    def __init__(self, call, arguments):
        names = {f"a{i}": a for i, a in enumerate(arguments)}
        text = f"call({', '.join(names)})"
        self.timer = timeit.Timer(text, globals={"call": call, **names})
        self.best = self.timer.timeit(1)

    def turn(self):
        calls = max(1, int(TURN / self.best))
        self.best = min(self.best, self.timer.timeit(calls) / calls)
