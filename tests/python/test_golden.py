"""The golden vectors are those of the op table."""

from pathlib import Path

from torchair import _native

FOLDER = Path(__file__).resolve().parent.parent / "golden"
# tools/gen_golden.py says why
WITHOUT = ("prims::fma", "air::float8_", "air::fake_quantize", "air::moment")


def test_every_row_has_a_case():
    for kind in ("pointwise", "reduce"):
        text = (FOLDER / f"{kind}.txt").read_text()
        cases = {block.split()[0] for block in text.split("\n\n")}
        rows = {op for op in _native.ops() if _native.describe(op)[1] == kind}
        made = {op for op in rows if not op.startswith(WITHOUT)}
        assert cases == made, "run tools/gen_golden.py"
