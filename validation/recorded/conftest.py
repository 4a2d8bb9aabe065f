"""The tests import the tool's modules by their names, as run.py does."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
