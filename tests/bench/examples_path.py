"""Imported first: finds the modules of examples/, which the bench shares."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
