"""What functions around one graph come to: only what is surely just a call."""

import types

import pytest

from torchair.bytecode import Recipe, read, without_streams

OUT0, OUT1, NONE = (0, None), (1, None), (-1, None)


def graph(*args):
    raise AssertionError("never called")


def item(x, y):
    return graph(y, x)[0]


def named(x, *, y=3):
    found = graph(x, y, x)
    given = found[1]
    del found
    return given


def unpacked(x):
    a, b = graph(x)
    return b, None, a, 7


def in_list(x):
    found = graph(x)
    return [found[1], found[1]]


def through_lists(x):
    """As Dynamo's code keeps what it gives back."""
    made = graph(x)
    return [*[made[0]], *(made[1], None)]


def nothing(x):
    graph(x)
    return ()


SIMPLE = [
    (item, ("y", "x"), "item", (OUT0,)),
    (named, ("x", "y", "x"), "item", (OUT1,)),
    (unpacked, ("x",), "tuple", (OUT1, NONE, OUT0, (-1, 7))),
    (in_list, ("x",), "list", (OUT1, OUT1)),
    (through_lists, ("x",), "list", (OUT0, OUT1, NONE)),
    (nothing, ("x",), "item", ((-1, ()),)),
]


@pytest.mark.parametrize("fn,arguments,shape,items", SIMPLE)
def test_what_is_only_a_call(fn, arguments, shape, items):
    assert read(fn.__code__, "graph") == Recipe(arguments, shape, items)


# As Dynamo's code calls its modules; it loads the functions of these.
class _Module:
    def __getattr__(self, name):
        raise AssertionError("never called")


__import_torch = _Module()
__import_torch_dot__dynamo_dot_utils = _Module()
__import_torch_dot__dynamo_dot_graph_bytecode_inputs = _Module()


def noted(x):
    note = (
        __import_torch_dot__dynamo_dot_graph_bytecode_inputs
    ).store_user_object_weakrefs
    stream = __import_torch_dot__dynamo_dot_utils.get_current_stream
    device = __import_torch.device
    note(stream(device("npu", 0)), stream(device("npu", 1)))
    return graph(x)[0]


def test_current_streams_are_noted_by_the_interpreter():
    assert read(noted.__code__, "graph") is None
    code = without_streams(noted.__code__)
    assert read(code, "graph") == Recipe(("x",), "item", (OUT0,))


def of_a_module(self):
    """A recipe names parameters only: the function itself is called."""
    note = (
        __import_torch_dot__dynamo_dot_graph_bytecode_inputs
    ).store_user_object_weakrefs
    stream = __import_torch_dot__dynamo_dot_utils.get_current_stream
    device = __import_torch.device
    kept = stream(device("npu", 0))
    note(kept)
    del note, stream, device
    return graph(self.weight)[0]


def test_streams_that_nobody_asks_for_are_not_noted():
    assert read(of_a_module.__code__, "graph") is None
    code = without_streams(of_a_module.__code__)
    there = {"graph": lambda w: (w * 2,)}  # no device, no streams
    owner = types.SimpleNamespace(weight=21)
    for _ in range(100):  # until the interpreter has specialised it
        assert types.FunctionType(code, there)(owner) == 42


def notes_another_object(x):
    note = (
        __import_torch_dot__dynamo_dot_graph_bytecode_inputs
    ).store_user_object_weakrefs
    note(x)
    return graph(x)[0]


def notes_an_output(x):
    note = (
        __import_torch_dot__dynamo_dot_graph_bytecode_inputs
    ).store_user_object_weakrefs
    found = graph(x)
    note(found[0])
    return found[1]


def gives_the_stream(x):
    stream = __import_torch_dot__dynamo_dot_utils.get_current_stream
    device = __import_torch.device
    return graph(x)[0], stream(device("npu", 0))


def stream_of_an_argument(x):
    note = (
        __import_torch_dot__dynamo_dot_graph_bytecode_inputs
    ).store_user_object_weakrefs
    stream = __import_torch_dot__dynamo_dot_utils.get_current_stream
    note(stream(x))
    return graph(x)[0]


def device_of_an_argument(x):
    device = __import_torch.device
    device(x)
    return graph(x)[0]


def other_function_of_the_module(x):
    other = __import_torch_dot__dynamo_dot_utils.other
    other()
    return graph(x)[0]


def attribute(x):
    return graph(x.real)[0]


def keyword(x):
    return graph(x=x)[0]


def twice(x):
    return graph(graph(x)[0])[0]


def other(x):
    return print(x)


def no_call(x):
    return x


def constant(x):
    return graph(x, 1)[0]


def nested(x):
    out = graph(x)
    return out[0], [out[1]]


def everything(x):
    return graph(x)


def from_behind(x):
    return graph(x)[-1]


def branch(x):
    return graph(x)[0] if x else None


def loop(x):
    for _ in x:
        graph(x)
    return ()


def effect(x, seen):
    out = graph(x)
    seen.append(1)
    return out[0]


def local_back(x):
    return graph(x)[0], x


def rest(*x):
    return graph(x)[0]


def closed(x):
    def inner():
        return x

    return graph(inner)[0]


def changed(x):
    x = 3
    return graph(x)[0]


MORE = [
    attribute, keyword, twice, other, no_call, constant, nested, everything,
    from_behind, branch, loop, effect, local_back, rest, closed, changed,
    notes_another_object, notes_an_output, gives_the_stream,
    stream_of_an_argument, device_of_an_argument, other_function_of_the_module,
]  # fmt: skip


@pytest.mark.parametrize("fn", MORE)
def test_what_is_more_is_left_to_python(fn):
    assert read(fn.__code__, "graph") is None


@pytest.mark.parametrize(
    "fn",
    [item, notes_another_object, notes_an_output, gives_the_stream,
     stream_of_an_argument],
)  # fmt: skip
def test_other_code_begins_as_it_does(fn):
    assert without_streams(fn.__code__) is None
