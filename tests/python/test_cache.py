"""cache_compile and readable_cache."""

import errno
import glob
import json
import os
import random
import shutil
import stat
import subprocess
import sys
import warnings

import cache_model
import pytest
import torch
from cache_model import Model, call, flat

import torchair
from torchair import cache_file, codec, comm, loading, saving
from torchair.inference import cache_compile, kernel_of, readable_cache

pytestmark = pytest.mark.host("test_cuda_cache has graphs of a GPU")


def files(folder):
    return sorted(
        glob.glob(os.path.join(folder, "**", "compiled_module"), recursive=True)
    )


def compiled(folder, method="prompt", **options):
    """The file of one compiled method."""
    model = Model(cache_dir=str(folder), **options)
    call(getattr(model, f"cached_{method}"))
    (path,) = files(folder)
    return path


def same(want, got):
    torch.testing.assert_close(
        torch.tensor(flat(got)), torch.tensor(flat(want))
    )


def said_of(action):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = action()
    return result, [str(w.message) for w in said]


def fresh(folder, mode):
    here = os.path.dirname(cache_model.__file__)
    found = subprocess.run(
        [sys.executable, cache_model.__file__, str(folder), mode],
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
    )
    assert "Warning" not in found.stderr, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


@pytest.mark.parametrize("mode", ["max-autotune", "reduce-overhead"])
def test_a_fresh_process_needs_no_dynamo(tmp_path, mode):
    first = fresh(tmp_path, mode)
    assert first.pop("dynamo")
    assert len(files(tmp_path)) == 2
    second = fresh(tmp_path, mode)
    assert second.pop("dynamo") == []
    assert second == first
    eager = Model()
    with torch.no_grad():
        for got, size in zip(first["found"], (3, 5, 3, 3), strict=True):
            want = torch.tensor(flat(call(eager.prompt, size)))
            torch.testing.assert_close(torch.tensor(got), want)


def test_paths(tmp_path):
    def path(**options):
        config = torchair.CompilerConfig()
        config.mode = options.pop("mode", "max-autotune")
        cached = cache_compile(
            model.prompt, config=config, cache_dir=str(tmp_path), **options
        )
        found = cached.place.path(cached.method, cached.config)
        return os.path.relpath(found, tmp_path).split(os.sep)

    model = Model()
    folder, method, name = path()
    assert folder.startswith("Model_dynamic_")
    assert len(folder) == len("Model_dynamic_") + 32
    assert (method, name) == ("prompt", "compiled_module")
    assert path(dynamic=False)[0].startswith("Model_static_")
    assert path(ge_cache=True)[0].startswith("Model_dynamic_gecache_")
    captured = path(mode="reduce-overhead")[0]
    assert captured.startswith("Model_dynamic_aclgraphcache_")
    ranks = path(global_rank=3, tp_rank=1, pp_rank=0)[1]
    assert ranks == "world1global_rank3_tp_rank1_pp_rank0"


def test_the_default_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call(Model().cached_prompt)
    assert files(tmp_path / ".torchair_cache")
    monkeypatch.setenv("TORCHAIR_CACHE_HOME", str(tmp_path / "home"))
    call(Model().cached_prompt)
    (path,) = files(tmp_path / "home")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_the_key_is_the_module_and_the_options(tmp_path):
    def key(model, config=None):
        cached = cache_compile(model.prompt, config=config)
        return cached.place.path(cached.method, cached.config)

    config = torchair.CompilerConfig()
    config.ge_config.oo_level = "O1"
    passes = []
    for step in (0.5, 1.5):  # Python 3.14 has integers in the code
        made = torchair.CompilerConfig()
        made.post_grad_custom_pre_pass = eval(f"lambda gm, inputs, c: {step}")
        passes.append(key(Model(), made))
    keys = {key(Model()), key(Model(6)), key(Model(), config), *passes}
    assert len(keys) == 4  # the passes differ in a constant only
    assert key(Model()) == key(Model())


def test_wrong_arguments(tmp_path, monkeypatch):
    model = Model()
    for func in (torch.relu, Model.prompt, cache_model.Where, "x".upper):
        with pytest.raises(ValueError, match="bound method"):
            cache_compile(func)
    config = torchair.CompilerConfig()
    config.ge_config.oo_level = "O1"
    backend = torchair.get_npu_backend(compiler_config=config)
    cached = cache_compile(model.prompt, backend=backend)
    assert cached.config == config
    cache_compile(model.prompt, config=config, backend=backend)
    with pytest.raises(ValueError, match="differ"):
        cache_compile(
            model.prompt, config=torchair.CompilerConfig(), backend=backend
        )
    with pytest.raises(ValueError, match="get_npu_backend"):
        cache_compile(model.prompt, backend="inductor")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(ValueError, match="another user"):
        cache_compile(model.prompt, cache_dir=str(tmp_path))


def recompiled(folder, model):
    """Calls a cached method, of which a file is there; what was said."""
    got, said = said_of(lambda: call(model.cached_prompt))
    with torch.no_grad():
        same(call(model.prompt), got)
    return "\n".join(said)


def test_nothing_is_said_of_a_good_file(tmp_path):
    path = compiled(tmp_path)
    before = os.stat(path).st_mtime_ns
    model = Model(cache_dir=str(tmp_path))
    assert recompiled(tmp_path, model) == ""
    assert os.stat(path).st_mtime_ns == before


@pytest.mark.parametrize("what", ["torch", "python", "engine"])
def test_files_of_another_build(tmp_path, monkeypatch, what):
    compiled(tmp_path)
    now = {**saving.built(), what: "other"}
    monkeypatch.setattr(saving, "built", lambda: now)
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert f"another {what}" in said
    assert recompiled(tmp_path, Model(cache_dir=str(tmp_path))) == ""


def test_a_source_has_changed(tmp_path, monkeypatch):
    compiled(tmp_path)
    digest = saving.digest
    monkeypatch.setattr(
        saving,
        "digest",
        lambda p: "x" if p == cache_model.__file__ else digest(p),
    )
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert f"{cache_model.__file__} has changed" in said


def test_weights_of_other_sizes(tmp_path):
    compiled(tmp_path)
    model = Model(cache_dir=str(tmp_path))
    model.cache = torch.zeros(9, 4)
    said = recompiled(tmp_path, model)
    assert "L['self']._buffers['cache'] is of size [9, 4]" in said
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert "_buffers['cache'] is of size [8, 4], it was [9, 4]" in said


def test_other_values_of_weights_are_no_matter(tmp_path):
    compiled(tmp_path)
    model = Model(cache_dir=str(tmp_path))
    with torch.no_grad():
        model.linear.weight.mul_(3)
    assert recompiled(tmp_path, model) == ""


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o400])
def test_others_might_have_written_it(tmp_path, mode):
    os.chmod(compiled(tmp_path), mode)
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert f"its mode is {mode:o}" in said


def test_a_link_is_not_followed(tmp_path):
    path = compiled(tmp_path)
    shutil.move(path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", path)
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert "no regular file" in said
    assert (tmp_path / "elsewhere").exists()


def test_a_damaged_file_is_replaced(tmp_path):
    path = compiled(tmp_path)
    with open(path, "r+b") as file:
        file.seek(500)
        file.write(b"\xff")
    said = recompiled(tmp_path, Model(cache_dir=str(tmp_path)))
    assert "its checksum is wrong" in said
    assert recompiled(tmp_path, Model(cache_dir=str(tmp_path))) == ""


def test_every_damage_is_seen(tmp_path):
    path = compiled(tmp_path)
    with open(path, "rb") as file:
        whole = file.read()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(300):
        data = bytearray(whole)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        else:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with open(path, "wb") as file:
            file.write(data)
        with pytest.raises(cache_file.Damaged):
            cache_file.read(path)
            pytest.fail(f"seed {seed}")


def test_what_another_may_have_put_there_is_not_read(tmp_path):
    """Not even if it takes the place of a file that was looked at."""
    path = compiled(tmp_path)
    other = tmp_path / "other"
    shutil.copyfile(path, other)
    with pytest.raises(cache_file.Damaged, match="mode"):
        cache_file.read(str(other))
    os.remove(path)
    os.symlink(other, path)
    with pytest.raises(OSError):
        cache_file.read(path)


@pytest.mark.parametrize("there", ["", "a"])
def test_what_cannot_be_written_leaves_no_folders(tmp_path, monkeypatch, there):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    (tmp_path / there).mkdir(exist_ok=True)
    with pytest.raises(OSError, match="No space"):
        cache_file.write_private(str(tmp_path / "a" / "b" / "c" / "f"), b"x")
    left = [p.name for p in tmp_path.rglob("*")]
    assert left == ([there] if there else [])


JUNK = (None, -1, 2**70, 1.5, "", "\x00é", [], [None], {}, {"is": "op"}, True)


def mutated(value, chance):
    """The value with one part of it replaced."""
    if isinstance(value, (list, dict)) and value and chance.random() < 0.85:
        made = value.copy()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = chance.choice(list(keys))
        made[key] = mutated(value[key], chance)
        return made
    return chance.choice(JUNK)


def test_contents_that_are_wrong_are_refused(tmp_path):
    """A right checksum over what no version writes."""
    path = compiled(tmp_path)
    content, tensors = cache_file.read(path)
    parts = ("program", "plan", "inputs", "imports", "builtins", "call")
    model = Model()
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(150):
        part = chance.choice(parts)
        made = {**content, part: mutated(content[part], chance)}
        cache_file.write(path, made, tensors)
        try:
            loading.Loaded(model.prompt, path, torchair.CompilerConfig())
        except (cache_file.Damaged, loading.Stale):
            pass
        except Exception as wrong:
            raise AssertionError(f"seed {seed}: {part}") from wrong


def test_codes_of_values():
    size = codec.hosts.Size(codec.sizes.computed(["+", ["size", 0, 1], 2]))
    values = [
        None,
        (1, 2.5, [True, "x"]),
        {"a": torch.float16, "b": torch.strided, 3: torch.channels_last},
        torch.device("cpu"),
        torch.ops.aten.add.Tensor,
        slice(1, None, 2),
        1 + 2j,
        float("inf"),
        codec.hosts.Operand(2),
    ]
    for value in values:
        data = json.loads(json.dumps(codec.encode(value)))
        assert codec.decode(data) == value
        assert type(codec.decode(data)) is type(value)
    read = codec.decode(codec.encode(size))
    assert read.value([torch.zeros(2, 5)]) == 7
    for value in (object(), len, torch.zeros(1)):
        with pytest.raises(codec.Unwritable):
            codec.encode(value)
    for data in ({"is": "no"}, {"is": "op", "of": "aten::no.such"}, object()):
        with pytest.raises(ValueError):
            codec.decode(data)


def test_groups_are_found_by_their_ranks():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group(
        "gloo", store=store, rank=0, world_size=1
    )
    try:
        name = torch.distributed.group.WORLD.group_name
        data = codec.encode(codec.Group(name))
        assert data == {"is": "group", "of": [0]}
        assert codec.decode(data) == name
        with pytest.raises(AssertionError, match="no group"):
            codec.decode({"is": "group", "of": [0, 1]})
    finally:
        torch.distributed.destroy_process_group()
    assert comm.find_group([0]) is None


def test_numbers_that_are_part_of_the_graph(tmp_path):
    folder = str(tmp_path)
    x = torch.arange(4.0)
    model = Model(cache_dir=folder, dynamic=False)
    assert model.cached_scaled(x, 3).tolist() == (x * 2 + 3).tolist()
    model = Model(cache_dir=folder, dynamic=False)
    assert model.cached_scaled(x, 3).tolist() == (x * 2 + 3).tolist()
    with pytest.warns(UserWarning, match="Skip cache as Model.scaled is rec"):
        assert model.cached_scaled(x, 4).tolist() == (x * 2 + 4).tolist()
    assert files(folder) == []
    assert model.cached_scaled(x, 5).tolist() == (x * 2 + 5).tolist()


def test_attributes_of_the_module(tmp_path):
    folder, x = str(tmp_path), torch.arange(4.0)
    Model(cache_dir=folder, dynamic=False).cached_scaled(x, 3)
    model = Model(cache_dir=folder, dynamic=False)
    model.factor = 7.0
    with pytest.warns(UserWarning, match=r"factor is 7.0, it was 2.0"):
        found = model.cached_scaled(x, 3)
    assert found.tolist() == (x * 7 + 3).tolist()


def test_a_second_compilation_gives_the_cache_up(tmp_path):
    model = Model(cache_dir=str(tmp_path), dynamic=False)
    call(model.cached_prompt, 3)
    assert files(tmp_path)
    with pytest.warns(UserWarning, match="Skip cache as Model.prompt is reco"):
        found = call(model.cached_prompt, 4)
    with torch.no_grad():
        same(call(model.prompt, 4), found)
    assert files(tmp_path) == []


def test_inputs_of_the_first_call(tmp_path):
    compiled(tmp_path)
    model = Model(cache_dir=str(tmp_path))
    where = cache_model.Where(torch.tensor(1.0), [torch.zeros(2)])
    with pytest.raises(AssertionError, match=r"L\['x'\] is of stride \[1, 3\]"):
        model.cached_prompt(torch.ones(4, 3).t(), where)
    with pytest.raises(AssertionError, match=r"size \[3, 5\], it was"):
        model.cached_prompt(torch.ones(3, 5), where)
    call(model.cached_prompt)
    with pytest.raises(TypeError, match="float64, float32 is expected"):
        model.cached_prompt(torch.ones(3, 4).double(), where)


def test_what_cannot_be_written(tmp_path):
    x = torch.ones(4)
    for name, why in (("noisy", "random"), ("view", "view of an input")):
        model = Model(cache_dir=str(tmp_path))
        with pytest.warns(UserWarning, match=f"skip cache.*{why}"):
            getattr(model, f"cached_{name}")(x)
        assert files(tmp_path) == []


def test_attention_without_dropout_is_written(tmp_path):
    """Its operator has the tag of those that draw."""
    x = torch.linspace(-1, 1, 96)
    for _ in range(2):
        model = Model(cache_dir=str(tmp_path))
        found, said = said_of(lambda m=model: m.cached_attend(x))
        torch.testing.assert_close(found, model.attend(x))
        assert not said
    assert len(files(tmp_path)) == 1


def test_the_engines_result(tmp_path):
    path = compiled(tmp_path, ge_cache=True)
    folder = os.path.dirname(path)
    (graph,) = glob.glob(os.path.join(folder, "graph_*_*.om"))
    with open(os.path.join(folder, "graph_0.idx")) as file:
        (entry,) = json.load(file)["cache_file_list"]
    assert entry["cache_file_name"] == os.path.basename(graph)
    assert entry["graph_key"] == "0"
    model = Model(cache_dir=str(tmp_path), ge_cache=True)
    assert recompiled(tmp_path, model) == ""
    with open(graph, "ab") as file:
        file.write(b" ")
    model = Model(cache_dir=str(tmp_path), ge_cache=True)
    assert "another checksum" in recompiled(tmp_path, model)
    config = torchair.CompilerConfig()
    config.mode = "reduce-overhead"
    with pytest.warns(UserWarning, match="ge_cache has an effect"):
        Model(config=config, ge_cache=True)


def test_readable(tmp_path, capsys):
    path = compiled(tmp_path)
    text = readable_cache(path)
    assert capsys.readouterr().out.strip() == text.strip()
    assert "name: Model.prompt" in text
    assert "l_self_modules_linear_parameters_weight_ Parameter(" in text
    assert "_buffers['cache'])=torch.float32[8, 4]" in text
    assert "UserInput(L['x'])=torch.float32[None, 4]" in text
    assert "mode: max-autotune" in text
    assert "LOAD_GLOBAL" in text
    made = str(tmp_path / "prompt.py")
    assert readable_cache(path, print_output=False, file=made) == text
    assert capsys.readouterr().out == ""
    assert stat.S_IMODE(os.stat(made).st_mode) == 0o600
    scope = {}
    with open(made) as file:
        exec(file.read(), scope)
    assert "mul.Tensor" in scope["GRAPH"] and callable(scope["kernel"])


def test_readable_refuses(tmp_path):
    path = compiled(tmp_path)
    link = str(tmp_path / "link")
    os.symlink(path, link)
    for wrong in (str(tmp_path / "none"), link, 3):
        with pytest.raises(ValueError):
            readable_cache(wrong)
    with pytest.raises(ValueError, match="link"):
        readable_cache(path, False, file=link)
    open_to_all = str(tmp_path / "open")
    with open(open_to_all, "w"):
        os.chmod(open_to_all, 0o644)
    with pytest.raises(PermissionError):
        readable_cache(path, False, file=open_to_all)
    os.chmod(path, 0o640)
    with pytest.raises(PermissionError, match="mode is 640"):
        readable_cache(path)


def test_a_kernel_of_its_own(tmp_path):
    model = Model(cache_dir=str(tmp_path))
    x = torch.arange(4.0)
    model.cached_scaled(x, 3)
    (path,) = files(tmp_path)
    factor = torch.tensor(5.0, dtype=torch.float64)
    (found,) = kernel_of(path)(4, x, factor, 6)
    assert found.tolist() == (x * 5 + 6).tolist()


def test_by_the_name_of_npugraph_ex(tmp_path):
    from torchair.npugraph_ex import inference

    model = Model()
    for _ in range(2):
        run = inference.cache_compile(
            model.scaled,
            dynamic=False,
            cache_dir=str(tmp_path),
            options={"clone_output": True},
        )
        assert run(torch.ones(2), 1).tolist() == [3.0, 3.0]
    (path,) = files(tmp_path)
    assert "Model_static_aclgraphcache_" in path
    text = inference.readable_cache(path, print_output=False)
    assert "debug.aclgraph.enable_output_clone: 1" in text
    with pytest.raises(ValueError, match="no_such"):
        inference.cache_compile(model.scaled, options={"no_such": 1})
