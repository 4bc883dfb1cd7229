"""What changes in Dynamo's graph before AOTAutograd sees it, in order."""

from __future__ import annotations

from torch.fx import GraphModule

from . import corrections, factors, gears, masks, syncs
from .config import CompilerConfig


def run(gm: GraphModule, config: CompilerConfig) -> None:
    syncs.write_operators(gm)
    corrections.widen(gm)
    factors.free(gm, exact=config.captures)
    if not config.captures:  # which computes with eager's kernels
        masks.lay(gm)
    gears.apply(gm, config.inference_config.dynamic_gears_merge_policy.raw)
