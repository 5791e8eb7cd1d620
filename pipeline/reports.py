"""The report of a run, written anew when a phase has changed what there is to tell."""

from pipeline.context import RunPlan


def show_report(plan: RunPlan) -> None:
    """Write RUN/report.html from the run's files and name it, unless run.figures is false.

    Raises:
        ValueError: a file of the run is damaged.
    """
    from report.page import write_report

    if plan.experiment.run.figures:
        print(f"report: {write_report(plan.run_dir)}")
