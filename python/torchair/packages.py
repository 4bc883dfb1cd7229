"""The package torch_npu that torchair brings, and who loads it.

In an installation it lies inside torchair, where it is in nobody's way. A
distribution of its own, packages/torch_npu, adds the file torch_npu.py that
loads it; a vendor's package of that name is a folder, which Python finds
before the file.
"""

from __future__ import annotations

import sys
import warnings
from importlib import metadata, util
from pathlib import Path

FOLDER = Path(__file__).parent / "_packages" / "torch_npu"


def vendor_version() -> str | None:
    """The version of an installed torch_npu of the vendor; None: none is."""
    for name in ("torch-npu", "torch_npu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def refuse_to_shadow() -> None:
    """ImportError where the vendor's torch_npu is installed."""
    found = vendor_version()
    if found is not None:
        raise ImportError(
            f"torch_npu {found} is installed, and torchair's stand-in does "
            "not take its place: import the installed one (take torchair's "
            "folder off the path), or uninstall it to emulate the device"
        )


def load_torch_npu() -> None:
    """Makes sys.modules["torch_npu"] the package in FOLDER."""
    refuse_to_shadow()
    spec = util.spec_from_file_location(
        "torch_npu",
        FOLDER / "__init__.py",
        submodule_search_locations=[str(FOLDER)],
    )
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    before = sys.modules.get("torch_npu")
    sys.modules["torch_npu"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules["torch_npu"]
        else:
            sys.modules["torch_npu"] = before
        raise


def autoload() -> None:
    """`import torch` calls this (entry point torch.backends).

    So programs that never import torch_npu have the device. It stays away
    where the vendor's package does this itself, and where torch was built for
    another accelerator: `import torch_npu` asks for it there.
    """
    import torch

    built = (torch.version.cuda, torch.version.hip, torch.version.xpu)
    if "torch_npu" in sys.modules or any(built) or vendor_version():
        return
    if torch.backends.mps.is_built():
        return
    try:
        import torch_npu  # noqa: F401
    except ImportError as error:
        # A torchair that is broken or not built must not take torch with it.
        warnings.warn(
            f"device npu is left out: {error}. `import torch_npu` shows where",
            stacklevel=2,
        )
