"""Run tasks of EleutherAI's lm_eval on a saved model.

MODEL is a model folder: RUN/model, or RUN/retrain/NAME/seed-N/model. Every request is read in full,
in segments as in the model's own test, with the memory carried over, and independently of the other
requests. It needs the package: pip install 'lm_eval>=0.4.9'. A task of your own is a YAML file in a
folder given by --include-path; such a folder may hold Python code, which lm_eval runs.

    python -m tools.lm_eval runs/quickstart/model --tasks wikitext --limit 10
    python -m tools.lm_eval runs/quickstart/model --tasks mine --include-path tasks

With HF_DATASETS_OFFLINE=1 in the environment nothing is downloaded.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import cli


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = parse(argv)
    with cli.user_errors(loads=None):
        from model.architecture import check_model_folder
        from utils.validation import check_installed

        tasks = arguments.include_path
        if tasks is not None and not tasks.is_dir():
            raise ValueError(f"--include-path: {tasks}: not a folder; give one with YAML files")
        check_installed("tools.lm_eval", ("lm_eval",))
        check_model_folder(arguments.model)
        cli.loading("lm_eval")
        run(arguments)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments."""
    parser = cli.tool_parser("lm_eval", __doc__)
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="a model folder")
    add("--tasks", nargs="+", required=True, metavar="TASK", help="names of tasks")
    add("--include-path", type=Path, metavar="DIR",
        help="a folder with further tasks (default: lm_eval's own tasks only)")  # fmt: skip
    add("--limit", type=cli.number_from(1), metavar="N",
        help="documents per task (default: all)")  # fmt: skip
    add("--num-fewshot", type=cli.number_from(0), metavar="N",
        help="examples before each document (default: as the task says)")  # fmt: skip
    add("--batch", type=cli.number_from(1), default=16, metavar="B",
        help="batch size; it does not change results")  # fmt: skip
    add("--seed", type=cli.number_from(0, 2**31 - 1), default=0, metavar="S",
        help="random seed of tasks that sample text")  # fmt: skip
    add("--device", default="auto", metavar="NAME", help="auto, cpu, cuda or cuda:N")
    add("--json", type=cli.file_to_write, metavar="OUT", help="write the results to a new file too")
    return parser.parse_args(argv)


def run(arguments: argparse.Namespace) -> None:
    """Print a line for each figure of the tasks, and write the --json file whole.

    ValueError: a task is not known.
    """
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from export.lm_eval import ParnasLM
    from model import load_model
    from pipeline.devices import device_of
    from pipeline.run_files import read_model_folder
    from utils.files import write_whole
    from utils.text import aligned

    device, saved = device_of(arguments.device), read_model_folder(arguments.model)
    model = load_model(arguments.model).to(device)
    for loss in saved.tokenizer.losses:
        print(f"lossy: {loss}; results per byte or word mean little", file=sys.stderr)
    how = {"batch": arguments.batch, "seed": arguments.seed}
    logging.getLogger("lm_eval").setLevel(logging.WARNING)
    include = None if arguments.include_path is None else str(arguments.include_path)
    tasks = TaskManager(include_path=include)
    known = set(tasks.all_tasks)
    if unknown := [name for name in arguments.tasks if name not in known]:
        raise ValueError(
            f"--tasks: {', '.join(unknown)}: not known among {len(known)} tasks; "
            "--include-path names a folder of more"
        )
    results = simple_evaluate(
        model=ParnasLM(model, saved.tokenizer, saved.cut["segment"], **how),
        tasks=arguments.tasks,
        task_manager=tasks,
        limit=arguments.limit,
        num_fewshot=arguments.num_fewshot,
        log_samples=False,
    )
    rows = [["task", "metric", "value", "standard error"]]
    for task, figures in results["results"].items():
        for name in figures:
            metric, comma, chosen = name.partition(",")
            if comma and not metric.endswith("_stderr"):
                both = figures[name], figures.get(f"{metric}_stderr,{chosen}")
                shown = [f"{one:.4f}" if isinstance(one, float) else "-" for one in both]
                rows.append([task, metric, *shown])
    print("\n".join(aligned(rows, left=2)))
    if arguments.json is not None:
        kept = ("results", "versions", "n-shot", "n-samples")
        content = {name: results.get(name) for name in kept}
        content["model"] = str(arguments.model)
        write_whole(arguments.json, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
