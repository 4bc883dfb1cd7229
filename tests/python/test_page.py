"""The HTML page: what is written, and what a browser makes of it."""

import html
import json
import re
import shutil
import subprocess

import pytest
import torch
from helpers import compiled

import torchair
from torchair import backend, page
from torchair.steps import Recorder

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(16, 32)
        self.b = torch.nn.Linear(32, 8)

    def forward(self, x):
        y = torch.softmax(self.b(torch.relu(self.a(x))) * 2, -1)
        return y.flip(0) + torch.special.bessel_j0(y)


@pytest.fixture(scope="module")
def explained():
    torch._dynamo.reset()
    with torch.no_grad():
        found = torchair.explain(Model(), torch.randn(4, 16))
    assert not found.error
    return found


def data_of(path):
    text = path.read_text()
    packed = re.search(r"const DATA = (.*);\n", text)[1]
    return json.loads(packed.replace("<\\/", "</"))


def test_the_page_holds_the_graph(explained, tmp_path):
    path = tmp_path / "model.html"
    assert explained.html(str(path)) == str(path)
    text = path.read_text()
    assert not re.search(r"""(src|href)=["']?http""", text)
    (graph,) = data_of(path)["graphs"]
    fx = {name for n in graph["nodes"] for name in n["fx"].split(",")}
    assert {"addmm", "relu", "_softmax", "flip", "special_bessel_j0"} <= fx
    relu = next(n for n in graph["nodes"] if n["fx"] == "relu")
    assert relu["types"] == ["f32[4, 32]"]
    assert relu["at"].startswith("test_page.py:")
    assert graph["hosts"][0]["op"] == "special_bessel_j0"
    kinds = {s["kind"] for s in graph["steps"]}
    assert kinds == {"region", "call", "host", "view"}
    members = [i for s in graph["steps"] for i in s["nodes"]]
    assert sorted(members) == list(range(len(graph["nodes"])))
    assert {m["where"] for m in graph["memory"]} >= {"input", "arena"}


def test_steps_have_time_traffic_and_arithmetic(explained):
    steps = explained.graphs[0].steps
    first = next(s for s in steps if s["label"] == "addmm")
    assert first["us"] > 0 and first["at"].startswith("test_page.py:")
    assert first["bytes"] == 4 * (32 + 4 * 16 + 16 * 32 + 4 * 32)
    assert first["flops"] == 2 * 4 * 16 * 32
    assert all(s["us"] > 0 for s in steps)
    assert "the slowest steps:" in str(explained)
    limits = explained.graphs[0].limits
    assert limits["read"] > 1e8 and limits["flops"] > 1e8
    for s in steps:
        shares = {
            "memory": s["gb_s"] * 1e9 / limits["read"],
            "flops": s["gflop_s"] * 1e9 / limits["flops"],
        }
        assert s["bound"] == max(shares, key=shares.get) or s["share"] < 0.01
        assert abs(s["share"] - max(shares.values())) < 0.02
    assert "% of memory" in str(explained) or "% of flops" in str(explained)
    assert "GB/s read, the best 16 MB" in str(explained)
    assert json.dumps(explained.as_dict())


def test_flops_of_convolutions_and_attention():
    def fn(image, weight, q, k):
        return (
            torch.conv2d(image, weight),
            torch.nn.functional.scaled_dot_product_attention(q, k, k),
        )

    q, k = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 32, 16)
    args = torch.randn(1, 3, 8, 8), torch.randn(5, 3, 3, 3), q, k
    programs = []
    run = compiled(fn)
    with torch.no_grad(), backend.collect([], programs):
        run(*args)
        programs[0].watch = recorder = Recorder()
        run(*args)
    flops = {
        s.label: s.flops for s in recorder.steps if s.kind in ("call", "host")
    }
    assert 2 * 5 * 6 * 6 * 27 in flops.values()
    assert any(
        4 * 2 * 8 * 32 * 16 <= f <= 4 * 2 * 8 * 32 * 16 + 999
        for f in flops.values()
    )


def test_flops_of_gradients():
    """Each counts the products that it makes, whatever its result's size."""

    def fn(image, grad, weight, q, k, v, top):
        made, weights, _ = torch.ops.aten.convolution_backward(
            *(grad, image, weight, None, [2, 2], [0, 0], [1, 1]),
            *(False, [0, 0], 1, [True, True, False]),
        )
        out, logs = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v
        )
        gradient = (
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        )
        return made, weights, *gradient(top, q, k, v, out, logs, 0.0, False)

    sizes = [(1, 3, 13, 15), (1, 5, 6, 7), (5, 3, 3, 3)]
    sizes += [(1, 2, 40, 16), (1, 2, 24, 16), (1, 2, 24, 16), (1, 2, 40, 16)]
    args = [torch.randn(size) for size in sizes]
    programs = []
    run = compiled(fn)
    with backend.collect([], programs):
        run(*args)
        programs[0].watch = recorder = Recorder()
        run(*args)
    found = {s.label.split("::")[-1]: s.flops for s in recorder.steps}
    products = 2 * 6 * 7 * 5 * 3 * 9
    assert found["convolution_weight"] == products
    assert found["convolution_transposed"] == products
    backward = [v for k, v in found.items() if k.endswith("_backward")]
    five = 5 * 2 * 2 * 40 * 24 * 16
    assert len(backward) == 1 and five <= backward[0] < 1.1 * five


def test_every_line_of_the_text_form_is_read():
    text = (
        "graph f(%x: f32[s0, 4]) {\n"
        '  %1: f32[s0, 4] = host "a::b" 7 "no (row)" (%x)  # m.py:3\n'
        "  %2: f32[4, s0] = permute(%1, dims=[1, 0])\n"
        "  %a: f32[2], %b: i64[2] = max.dim(%2, 0, false) @12  # m (1).py:4\n"
        "  return %a\n}\n"
    )
    host, view, pair = page.nodes(text)
    assert host["reads"] == ["x"] and host["at"] == "m.py:3"
    assert view["reads"] == ["1"] and view["group"] == -1
    assert pair["names"] == ["a", "b"] and pair["group"] == 12


def test_text_cannot_end_the_script(tmp_path):
    path = tmp_path / "p.html"
    page.write(str(path), "</script><b>", [], ["</script>"])
    assert path.read_text().count("</script>") == 1
    assert data_of(path)["title"] == "</script><b>"


# ---- in a browser ----


def opened(path, ask=""):
    """The page's HTML once its script has run."""
    out = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,900",
            "--enable-logging=stderr",
            "--dump-dom",
            f"file://{path}#{ask}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Uncaught" not in out.stderr, out.stderr
    body = re.sub(r"<script>.*</script>", "", out.stdout, flags=re.DOTALL)
    return html.unescape(body)


browser = pytest.mark.skipif(
    BROWSER is None,
    reason="no browser; install chromium-headless-shell to run this test",
)


@browser
def test_a_browser_shows_the_graph(explained, tmp_path):
    path = tmp_path / "model.html"
    explained.html(str(path))
    body = opened(path)
    boxes = set(re.findall(r'class="box" data-step="(\d+)"', body))
    drawn = [s for s in explained.pages[0]["steps"] if s["kind"] != "view"]
    assert len(boxes) == len(drawn)
    assert body.count('class="edge') >= len(drawn) - 2
    assert "HOST special_bessel_j0: no row in the op table" in body


@browser
def test_a_chosen_node_has_its_line_type_and_size(explained, tmp_path):
    path = tmp_path / "model.html"
    explained.html(str(path))
    body = opened(path, "node=relu&search=relu")
    side = body[body.index("<aside") :]
    assert "f32[4, 32]" in side and "test_page.py:" in side
    assert "1 nodes" in body
    chosen = re.search(r'class="box on" data-step="(\d+)"', body)[1]
    step = explained.pages[0]["steps"][int(chosen)]
    assert "relu" in step["label"] or "addmm" in step["label"]
    assert (
        body.count("box dim")
        == len([s for s in explained.pages[0]["steps"] if s["kind"] != "view"])
        - 1
    )


@browser
@pytest.mark.parametrize(
    "tab, shown",
    [
        ("Timeline", "fused regions"),
        ("Memory", "height is address"),
        ("Steps", "GFLOP/s"),
    ],
)
def test_other_views(explained, tmp_path, tab, shown):
    path = tmp_path / "model.html"
    explained.html(str(path))
    body = opened(path, f"tab={tab}")
    view = body[body.index('<div id="view"') : body.index("<aside")]
    assert shown in view and "data-step" in view


@browser
def test_errors_of_a_comparison(tmp_path):
    found = torchair.compare(Model(), torch.randn(4, 16))
    path = tmp_path / "errors.html"
    found.html(str(path))
    body = opened(path)
    view = body[body.index('<div id="view"') : body.index("<aside")]
    assert "eager's error" in view and "_softmax" in view
    assert "no value is more than" in body
    assert 'value="1"' in body  # the backward graph can be chosen
