"""Figures, tables and a page from the files of a run; imports none of our packages.

Importing it loads matplotlib and pandas, so scripts import it only where they need it.
"""

from report.comparison import Comparison, html_table, read_comparison, text_table
from report.page import write_report
from report.run_files import Trajectory, read_metrics, read_trajectory
from report.search_figures import write_search_figures

__all__ = [
    "Comparison",
    "Trajectory",
    "html_table",
    "read_comparison",
    "read_metrics",
    "read_trajectory",
    "text_table",
    "write_report",
    "write_search_figures",
]
