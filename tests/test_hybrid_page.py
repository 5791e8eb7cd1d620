"""The page of the hybrid experiment is that of its records."""

import statistics

from benchmarks.arms import arms_of, choice_nats
from benchmarks.arms_report import TrainedArm, comparison_lines, difference_of, trained_arms
from benchmarks.layout_rows import Row, rows_of
from tests.test_readme_figures import RESULTS, ROOT, record, words_of

PAGE = "docs/experiments/hybrid.md"
ARMS = arms_of(ROOT / "benchmarks/hybrid_arms.yaml")


def rows() -> list[Row]:
    return [row for name in ("hybrid", "headline") for row in rows_of(RESULTS / f"{name}.csv")]


def trained_by_name() -> dict[str, TrainedArm]:
    return trained_arms(ARMS, rows())


def test_the_page_of_the_hybrid_has_the_rules_as_they_came_out() -> None:
    page = words_of(PAGE)
    rules = next(group for group in ARMS.groups if group.name == "rules")
    choice = choice_nats(ARMS, rules, rows())
    assert set(choice) == set(rules.among)
    for layout, by_seed in choice.items():
        cells = [f"{by_seed[seed]:.4f}" if seed in by_seed else "" for seed in (202, 203)]
        assert f"| `{layout}` | {' | '.join(cells)} |".replace("|  |", "| |") in page, layout


def test_the_page_of_the_hybrid_has_the_finals_of_the_wide_choice() -> None:
    page, content = words_of(PAGE), record("hybrid_choice.json")
    nats: dict[str, list[float]] = {}
    for row in content["rows"]:
        if row["length"] == "full":
            layout = row["layout"].replace(" ", "").replace("i", "")
            nats.setdefault(layout, []).append(row["valid_nats"])
    assert len(nats) == 4
    for layout, values in nats.items():
        assert f"| `{layout}` | {' | '.join(f'{value:.4f}' for value in values)} |" in page
    (answer,) = {row["layout"] for row in content["rows"] if row["answer"] == "yes"}
    trained = trained_by_name()
    assert answer.replace(" ", "").replace("i", "") == trained["wide"].layout
    assert trained["wide"].layout == trained["narrow"].layout == trained["best rule"].layout


def test_the_page_of_the_hybrid_has_the_arms_and_their_differences() -> None:
    page, trained = words_of(PAGE), trained_by_name()
    times = record("hybrid_times.json")["latency"]["median_ms"]
    for name in ("wide", "gated", "cut", "interleaved"):
        one = trained[name]
        nats = [*one.nats.values()]
        assert len(nats) == 8
        figures = f"{statistics.fmean(nats):.4f} | {statistics.stdev(nats):.4f}"
        share = f"{times[name] / times['cut']:.3f}x"
        assert f"| `{one.layout}` | {figures} | {share} |" in page, name
        assert times[name] <= 1.05 * times["cut"] or name == "interleaved", "the limit"
    same = sorted(times[name] / times["cut"] for name in ("wide", "narrow", "best rule"))
    assert f"measured three times: {same[0]:.3f}x to {same[-1]:.3f}x" in page
    made = [*comparison_lines(ARMS.comparisons, trained, len(ARMS.comparisons))]
    for comparison, line in zip(ARMS.comparisons, made, strict=True):
        one, (other,) = trained[comparison.arm], comparison.against
        if one.network == trained[other].network:
            assert "one network" in line
            continue
        difference = difference_of(one, [trained[other]])
        assert difference is not None
        p_value = line.partition(", p ")[2].split()[0].replace("0.0000", "below 0.0001")
        verdict = line.rpartition(": ")[2]
        words = f"{difference.mean_nats:+.4f} ± {difference.half_nats:.4f} | {p_value} | {verdict}"
        assert words in page, line
