"""Which torch_npu a process gets."""

from __future__ import annotations

from importlib import metadata


def real_version() -> str | None:
    """The version of an installed torch_npu of the vendor, None: none is."""
    for name in ("torch-npu", "torch_npu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def refuse_to_shadow() -> None:
    """ImportError where the vendor's torch_npu is installed."""
    found = real_version()
    if found is not None:
        raise ImportError(
            f"torch_npu {found} is installed, and torchair's stand-in does "
            "not take its place: import the installed one (take torchair's "
            "folder off PYTHONPATH), or uninstall it to emulate the device"
        )
