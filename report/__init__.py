"""Figures, tables and pages from the files of a run; imports nothing of ours but utils.

Its modules load matplotlib and pandas, so scripts import them only where they need them.
"""

import os

# Read when matplotlib is imported, which fails where it is the backend of a notebook whose packages
# are not those of this environment. All figures here are files.
os.environ["MPLBACKEND"] = "agg"
