"""How the importer takes the nodes of an operator."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from . import comm, rewrites, rng_states
from .operators import remembered
from .schema import TOKENS, is_random, namespace_of

aten = torch.ops.aten
# Checks that guards have made already, or that have no meaning here; the first
# and last of the tokens that order effects.
_DROPPED = {
    *TOKENS,
    aten._assert_scalar.default,
    aten._assert_tensor_metadata.default,
    aten.sym_constrain_range.default,
    aten.sym_constrain_range_for_size.default,
}

# Without the tag that says so. The second is `x.data = y` of torch 2.14, which
# was `set_`.
_OTHER_MEMORY = ("inductor::resize_storage_bytes_", "aten::shallow_copy_data_")

_QUANTISING = (
    "aten::quantize_per_",
    "aten::_make_per_",
    "aten::_empty_affine_quantized",
    "aten::_empty_per_channel_affine_quantized",
)


class Kind(NamedTuple):
    dropped: bool
    collective: bool
    random: bool
    state: bool  # saves or restores that of torch's generator
    refused: str  # what it does that no value of the engine can have; or ""
    rewrite: rewrites.Rewrite | None


@remembered
def of(target: Any) -> Kind:
    """Of an operator, or of another callable."""
    return Kind(
        target in _DROPPED,
        namespace_of(target) == comm.NAMESPACE,
        is_random(target),
        target in rng_states.CALLS,
        _refused(target),
        rewrites.find(target),
    )


def _refused(target: Any) -> str:
    tags = getattr(target, "tags", ())
    name = getattr(getattr(target, "_schema", None), "name", "")
    if torch.Tag.inplace_view in tags or name in _OTHER_MEMORY:
        return "changes whose memory a tensor has"
    # Traced, the result has the dtype of its stored integers, which is wrong.
    if name.startswith(_QUANTISING):
        return "makes a quantized tensor"
    return ""
