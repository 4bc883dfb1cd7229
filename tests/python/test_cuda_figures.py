"""tests/bench/cuda_figures.py: figures of processes, and the tables of them."""

import json
import pathlib
import sys

import pytest

BENCH = pathlib.Path(__file__).parents[1] / "bench"


@pytest.fixture
def figures(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import cuda_figures

    yield cuda_figures
    for name in ("cuda_figures", "gpu"):
        sys.modules.pop(name, None)


def row(bench, name, way, **found):
    return {
        **{"bench": bench, "name": name, "way": way},
        **{"gpu": "a GPU", "device": "cuda", "torch": "2.x", "error": 1e-3},
        **found,
    }


ROWS = [
    row("models", "ViT x 1", "eager", ms=4.0),
    row("models", "ViT x 1", "Inductor default", ms=0.9),
    row("models", "ViT x 1", "Inductor max-autotune", ms=0.7),
    row("models", "ViT x 1", "max-autotune", ms=9.0),
    row("models", "ViT x 1", "max-autotune", ms=0.8),  # measured again
    row("decode", "Llama-1B", "reduce-overhead", ms=1.0, limit_ms=0.5),
    row("host", "three pointwise", "eager", host_us=20.04),
    row("regions", "copy f32", "region", gb_s=4000.0),
    row("regions", "sum rows", "region", gb_s=3000.0),
]


def test_tables_of_figures(figures, tmp_path):
    path = tmp_path / "figures.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in ROWS))
    lines = list(figures.tables(figures.read(path)))
    assert lines[0] == "a GPU, torch 2.x"
    assert "| ViT x 1 | 4.000 | 0.700 | – | 0.800 |" in lines
    assert "| Llama-1B | – | – | 1.000 | – |" in lines
    assert (
        "| Llama-1B | reduce-overhead | 1.0000 | 1.0e-03 | 50 % | – | – |"
        in (lines)
    )
    assert "| eager | 20.0 |" in lines
    assert "| sum rows | 3000 | 0.75 |" in lines


def test_lines_of_regions(figures):
    text = "softmax 128      12.3 us   3915.0 GB/s   8.0 MB   first 5 ms\nno\n"
    (found,) = figures.parse_regions(text)
    assert found["name"] == "softmax 128" and found["gb_s"] == 3915.0


def test_parts_that_fail_are_named_and_the_rest_goes_on(figures, tmp_path):
    script = tmp_path / "one.py"
    script.write_text(
        "import sys; sys.path.insert(0, sys.argv[2]); import gpu\n"
        "if sys.argv[1] == 'good': gpu.note('host', 'a', 'b', host_us=1.0)\n"
        "sys.exit(sys.argv[1] == 'bad')\n"
    )
    parts = [
        figures.Part(word, str(script), word, str(BENCH))
        for word in ("bad", "silent", "good")
    ]
    failed = figures.measure(parts, tmp_path, False, set())
    assert list(failed) == ["bad", "silent"]
    assert "status 1" in failed["bad"] and "no figure" in failed["silent"]
    (found,) = figures.read(tmp_path / "figures.jsonl")
    assert found["host_us"] == 1.0 and found["gpu"]
    known = set((tmp_path / "done.txt").read_text().split())
    assert known == {"good"}
    assert figures.measure(parts[2:], tmp_path, False, known) == {}
    assert len((tmp_path / "figures.jsonl").read_text().splitlines()) == 1


def test_every_part_has_a_script(figures):
    names = [part.name for part in figures.PARTS]
    assert len(set(names)) == len(names)
    for part in figures.PARTS:
        assert (BENCH / part.script).exists()
