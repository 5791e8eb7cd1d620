"""How long `benchmarks.cutoffs` takes beside start-up, for a vocabulary as WikiText-103's.

OMP_NUM_THREADS=1 python -m benchmarks.cutoffs_time --words 267735 --clusters 4
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--words", type=int, default=267_735)
    parser.add_argument("--clusters", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args(argv)
    import numpy as np

    import model  # noqa: F401  (start-up is not what is timed)
    from benchmarks import cutoffs
    from benchmarks.softmax_constants import processor

    count_V = 1e8 // np.arange(1, arguments.words + 1)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counts.txt"
        np.savetxt(path, np.random.default_rng(0).permutation(count_V), fmt="%d")
        for _ in range(arguments.repeats):
            start_s = time.perf_counter()
            cutoffs.main(["--counts", str(path), "--clusters", str(arguments.clusters)])
            seconds.append(time.perf_counter() - start_s)
    print(
        f"{processor()}: {arguments.words:,} Zipf counts, {arguments.clusters} clusters, reading "
        f"included: {min(seconds):.2f} to {max(seconds):.2f} s in {len(seconds)} runs"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
