"""Figures, tables and pages from the files of a run; imports nothing of ours but utils.

Its modules load matplotlib and pandas, so scripts import them only where they need them.
"""

import os
import sys

# Read when matplotlib is imported, which fails where it is the backend of a notebook whose packages
# are not those of this environment. All figures here are files; a notebook's own process keeps it.
if "IPython" not in sys.modules:
    os.environ["MPLBACKEND"] = "agg"
