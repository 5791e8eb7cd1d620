"""The page of the headline and the README's first claim are those of their records."""

import math
import re
import statistics

import pytest

from benchmarks.arms import arms_of, choice_nats
from benchmarks.arms_report import (
    TrainedArm,
    comparison_lines,
    comparisons_of,
    difference_of,
    interval_beside,
    paired,
    primary_line,
    trained_arms,
)
from benchmarks.layout_rows import rows_of
from benchmarks.learning_curves import means_of, training_of
from nas.statistics.intervals import paired_interval
from tests.test_readme_figures import RESULTS, ROOT, record, words_of

PAGE = "docs/experiments/headline.md"
ARMS = arms_of(ROOT / "benchmarks/headline_arms.yaml")


def trained_by_name() -> dict[str, TrainedArm]:
    return trained_arms(ARMS, rows_of(RESULTS / "headline.csv"))


def test_readme_begins_with_the_headline_of_its_trainings() -> None:
    """Mean differences of eight paired seeds with their 95% intervals, and the latency measured."""
    ms = record("headline_times.json")["latency"]["median_ms"]
    trained = trained_by_name()

    def beside(name: str) -> str:
        mean, half = paired_interval(paired(trained[name].nats, trained["interleaved"].nats))
        return f"{abs(mean):.3f} +- {half:.3f} {'less' if mean < 0 else 'more'}"

    choice = trained["chosen 0.65x"]
    share = f"{ms['chosen 0.65x'] / ms['interleaved']:.2f}x"
    begin = words_of("README.md").partition("## Two commands")[0]
    assert share in begin
    assert f"`{choice.layout}`" in begin
    for name in ("chosen 0.65x", "cut 0.65x"):
        assert beside(name) in begin.replace(" test nats", "")
        assert beside(name) in words_of(PAGE).replace(" nats", "")
    assert [len(one.nats) for one in list(trained.values())[:3]] == [8, 8, 8]


def test_the_page_of_the_headline_has_the_trainings_of_twice_the_length() -> None:
    trained, page = trained_by_name(), words_of(PAGE)
    base = trained["long interleaved"].nats[0]
    for name, short in (("long first 0.65x", "chosen 0.65x"), ("long cut 0.65x", "cut 0.65x")):
        one = trained[name]
        less = one.nats[0] - base
        words = f"{abs(less):.4f} {'less' if less < 0 else 'more'}"
        figures = f"{trained[short].nats[0]:.4f} | {one.nats[0]:.4f} | {words}"
        assert f"| `{one.layout}` | {figures} |" in page
    early = trained["long early 0.65x"].nats[0]
    assert f"| `aadadddd` | | {early:.4f} | {base - early:.4f} less |" in page


def test_the_page_of_the_headline_says_what_counts() -> None:
    page, times = words_of(PAGE), record("headline_times.json")
    trained = trained_by_name()
    for name, one in list(trained.items())[:3]:
        mean = statistics.fmean(one.nats.values())
        cells = page.partition(f"| `{one.layout}` | {mean:.4f} |")[2].split(" | ")
        costs = [times[of]["median_ms"] for of in ("latency", "train_step")]
        assert cells[1:3] == [f"{cost[name] / cost['interleaved']:.3f}x" for cost in costs]
    for comparison in ARMS.comparisons:
        if comparison.primary:
            said = primary_line(comparison, {name: arm.nats for name, arm in trained.items()})
            figures = re.findall(r"[+-]\d\.\d{4}(?: \+- \d\.\d{4} nats)?", said)
            assert (figures[-1] if comparison.margin_nats else figures[0]) in page, said


def test_the_page_of_the_headline_has_the_latencies_of_all_arms() -> None:
    page, times, trained = words_of(PAGE), record("headline_times_all.json"), trained_by_name()
    costs = [times[of]["median_ms"] for of in ("latency", "train_step")]

    def beside(name: str) -> list[str]:
        return [f"{cost[name] / cost['interleaved']:.3f}x" for cost in costs]

    assert costs[0].keys() == trained.keys()
    for name in ("chosen 0.5x", "cut 0.5x", "chosen 0.8x", "cut 0.8x", "narrow 0.65x"):
        assert f"| `{trained[name].layout}` | {' | '.join(beside(name))} |" in page
    assert f"| `adddddaddd` | {' | '.join(beside('SuperNet 0.65x'))} |" in page
    firsts, cuts = (
        [beside(name)[0] for name in names]
        for names in (
            ("chosen 0.65x", "long first 0.65x", "equal time 0.65x"),
            ("cut 0.65x", "long cut 0.65x"),
        )
    )
    assert (
        f"`interleaved` again {beside('long interleaved')[0]}; `aaaaddd` {firsts[0]}, {firsts[1]} "
        f"and {firsts[2]}; `adadada` {cuts[0]} and {cuts[1]}"
    ) in page
    randoms = sorted(beside(f"random {number}")[0] for number in range(8))
    assert f"The random networks take {randoms[0]} to {randoms[-1]}" in page


@pytest.mark.parametrize("budget", ["0.5x", "0.8x"])
def test_the_page_of_the_headline_says_what_other_budgets_give(budget: str) -> None:
    """Mean test nats with their deviation, and Welch's intervals."""
    page, trained = words_of(PAGE), trained_by_name()
    choice, cut = trained[f"chosen {budget}"], trained[f"cut {budget}"]
    for one in (choice, cut):
        nats = [*one.nats.values()]
        figures = f"{statistics.fmean(nats):.4f} | {statistics.stdev(nats):.4f}"
        assert f"| `{one.layout}` | {figures} |" in page
        assert len(nats) == 4
    intervals = []
    for other in (trained["interleaved"], cut):
        difference = difference_of(choice, [other])
        assert difference is not None
        intervals.append(f"{difference.mean_nats:+.4f} +- {difference.half_nats:.4f}")
    says = "the choice less the whole `interleaved` {} nats, less `{}` {}."
    assert says.format(intervals[0], cut.layout, intervals[1]) in page


def choice_words(name: str) -> dict[str, str]:
    """By layout: the validation nats of the seeds that chose, as the page has them."""
    group = next(group for group in ARMS.groups if group.name == name)
    choice = choice_nats(ARMS, group, rows_of(RESULTS / "headline.csv"))
    return {
        layout: " and ".join(f"{nats:.4f}" for nats in of.values()) for layout, of in choice.items()
    }


def test_the_page_of_the_headline_says_how_half_the_latency_was_chosen() -> None:
    says = "is **`aadddd`**: {aadddd}. `aaadd` has {aaadd}, `adaddd` {adaddd}, `adada` {adada}; "
    says += "`addadd` ({addadd}) and `adddddd` ({adddddd})"
    assert says.format(**choice_words("0.5x")) in words_of(PAGE)


def test_the_page_of_the_headline_says_how_four_fifths_were_chosen_and_came_out() -> None:
    page, trained, words = words_of(PAGE), trained_by_name(), choice_words("0.8x")
    says = "is **`aaaaadddd`**: {aaaaadddd}. `aadaaddddd` has {aadaaddddd}, `adadadada` "
    says += "{adadadada}, `aaaaaad` {aaaaaad}; the other ten, with seed 200 alone, have "
    assert says.format(**words) + "3.3905 to 3.5523" in page
    once = sorted(nats for nats in words.values() if "and" not in nats)
    assert (len(once), once[0], once[-1]) == (10, "3.3905", "3.5523")
    opponents = [*trained["cut 0.8x"].nats.values(), *trained["interleaved"].nats.values()]
    assert max(trained["chosen 0.8x"].nats.values()) < min(opponents), "as the page says"
    assert all(
        sorted(layout) == list(layout)
        for layout in (trained[f"chosen {of}"].layout for of in ("0.5x", "0.65x", "0.8x"))
    ), "attention first"


def test_the_page_of_the_headline_says_that_half_the_latency_was_chosen_for_its_luck_too() -> None:
    rows = [row for row in rows_of(RESULTS / "headline.csv") if row["layout"] == "aadddd"]

    def of(column: str, seeds: range) -> list[str]:
        nats = [float(row[column]) for row in rows if int(row["seed"]) in seeds]
        return [f"{value:.3f}" for value in sorted(nats)]

    test, valid, chose = (
        of(*one)
        for one in (
            ("test_nats", range(4)),
            ("valid_nats", range(4)),
            ("valid_nats", range(200, 202)),
        )
    )
    assert (
        f"Of the four fresh seeds of `aadddd` one has {test[0]}, three have {test[1]} to "
        f"{test[3]}. On validation they have {valid[0]} to {valid[3]}, where the two that chose "
        f"it had {chose[0]} and {chose[1]}"
    ) in words_of(PAGE)


def test_the_page_of_the_headline_has_the_other_networks_of_its_latency() -> None:
    page, trained = words_of(PAGE), trained_by_name()
    base, choice = trained["interleaved"], trained["chosen 0.65x"]
    randoms = [one for name, one in trained.items() if name.startswith("random ")]
    for one in randoms:
        less = one.nats[0] - base.nats[0]
        words = f"{abs(less):.4f} {'less' if less < 0 else 'more'}"
        assert f"| `{one.layout}` | {one.nats[0]:.4f} | {words} |" in page
    assert len(randoms) == 8
    mean_nats = statistics.fmean(choice.nats.values())
    assert sum(one.nats[0] < mean_nats for one in randoms) == 2
    narrow = trained["narrow 0.65x"]
    nats = [*narrow.nats.values()]
    interval = interval_beside(narrow, base)
    assert interval is not None
    cells = f"{statistics.fmean(nats):.4f} (deviation {statistics.stdev(nats):.4f})"
    assert f"{cells} | {interval[0]:.4f} +- {interval[1]:.4f} more |" in page
    first = TrainedArm(choice.arm, choice.layout, {seed: choice.nats[seed] for seed in range(4)})
    for one, others, says in (
        (choice, [narrow], "the narrow `interleaved`: "),
        (first, [narrow], "the first four seeds of the choice alone it would be "),
        (choice, randoms, "random networks: "),
    ):
        difference = difference_of(one, others)
        assert difference is not None
        mean, half, _ = difference
        assert f"{says}{mean:+.4f} +- {half:.4f}" in page


def test_the_page_of_the_headline_has_the_verdicts_of_all_comparisons_planned() -> None:
    planned = [one for one in ARMS.comparisons if not one.primary]
    assert len(planned) == 8, "as the page says"
    trained = trained_by_name()
    made = [one for one in comparisons_of(ARMS, trained) if one in planned]
    lines = [*comparison_lines(made, trained, len(planned))]

    def p_of(head: str, verdict: str) -> float:
        (line,) = (line for line in lines if line.startswith(f"compared: {head}"))
        assert line.endswith(f": {verdict}")
        return float(line.partition(", p ")[2].split()[0])

    page, not_shown = words_of(PAGE), "no difference shown"
    assert "Holm's method over all eight comparisons" in page
    narrow, alone, equal = (
        p_of(head, "better")
        for head in ("chosen 0.65x less narrow", "chosen 0.65x less SuperNet", "equal time")
    )
    random = p_of("chosen 0.65x less the mean", not_shown)
    half, more = (
        [p_of(f"chosen {budget} less {other}", not_shown) for other in ("interleaved", "cut")]
        for budget in ("0.5x", "0.8x")
    )
    for words in (
        f"-0.2581 +- 0.0875 nats, p {narrow:.4f}: better",
        f"-0.3097 +- 0.0855 nats, p {alone:.4f}: better",
        f"-0.4694 +- 0.2207 nats, p {equal:.3f}: better",
        f"-0.1403 +- 0.1230, p {random:.2f}: not shown",
        f"*No difference is shown* (p {half[0]:.2f} and {half[1]:.2f})",
        f"*No difference is shown* (p {more[0]:.2f} and {more[1]:.2f})",
    ):
        assert words in page


def test_the_page_of_the_headline_has_supernet_alone_and_equal_time() -> None:
    page, trained = words_of(PAGE), trained_by_name()
    base, choice = trained["interleaved"], trained["chosen 0.65x"]
    alone, equal = trained["SuperNet 0.65x"], trained["equal time 0.65x"]
    for one, beside, other in ((alone, choice, alone), (equal, equal, base)):
        nats = [*one.nats.values()]
        assert len(nats) == 4
        assert f"{statistics.fmean(nats):.4f} (deviation {statistics.stdev(nats):.4f})" in page
        difference = difference_of(beside, [other])
        assert difference is not None
        assert f"{difference.mean_nats:+.4f} +- {difference.half_nats:.4f} nats, p " in page
    more = statistics.fmean(alone.nats.values()) - statistics.fmean(base.nats.values())
    assert f"SuperNet's network has {more:.3f} more than the whole `interleaved`" in page
    randoms = [one for name, one in trained.items() if name.startswith("random ")]
    less = [difference_of(choice, others) for others in ([alone], randoms)]
    more_nats = [-one.mean_nats for one in less if one is not None]
    assert (
        "the search's own layout has {:.2f} nats more than the rules', random ones {:.2f} more "
        "(not shown)".format(*more_nats)
    ) in words_of("README.md")


def test_the_page_of_the_headline_says_what_another_text_gives() -> None:
    page, arms = words_of(PAGE), arms_of(ROOT / "benchmarks/wikitext_arms.yaml")
    trained = trained_arms(arms, rows_of(RESULTS / "headline_wikitext.csv"))
    assert "618,406 bytes in 186,057 tokens, so a nat a token is 0.4341 bits a byte" in page
    bits = 186_057 / 618_406 / math.log(2)
    for one in trained.values():
        nats = [*one.nats.values()]
        mean, deviation = statistics.fmean(nats), statistics.stdev(nats)
        cells = f"{mean:.4f} | {mean * bits:.4f} | {deviation * bits:.4f} |"
        assert f"| `{one.layout}` | {cells}" in page
        assert len(nats) == 4
    assert len(arms.comparisons) == 2
    choice, more = trained["chosen 0.65x"], []
    for line, other in zip(
        comparison_lines(arms.comparisons, trained, 2), ("interleaved", "cut 0.65x"), strict=True
    ):
        difference = difference_of(choice, [trained[other]])
        assert difference is not None
        mean, half = difference.mean_nats, difference.half_nats
        assert line.endswith(": worse")
        p_value = line.partition(", p ")[2].split()[0]
        words = f"{mean:+.4f} +- {half:.4f}"
        in_bits = f"{mean * bits:+.4f} +- {half * bits:.4f}"
        assert f"{words} nats ({in_bits}" in page
        assert f"), p {p_value}" in page
        more.append(f"{mean:.3f} +- {half:.3f}")
    says = "the same layout has {} nats *more* than `interleaved`, and {} more than `adadada`"
    assert says.format(*more) in page
    assert f"On a part of WikiText-2 it has {more[0]} more" in words_of("README.md")


def split_by_choice(by_seed: dict[str, list[float]]) -> dict[str, list[list[float]]]:
    """Figures of seeds that chose nothing, and of those that did, by how the page names them."""
    fresh = {seed: values for seed, values in by_seed.items() if int(seed) < 100}
    chose = {seed: values for seed, values in by_seed.items() if seed not in fresh}
    names = "0 to 7" if len(fresh) == 8 else ", ".join(fresh), ", ".join(chose)
    return {
        words: [*each.values()] for words, each in zip(names, (fresh, chose), strict=True) if each
    }


def test_the_page_of_the_headline_says_which_tokens_the_models_differ_on() -> None:
    page, models = words_of(PAGE), record("copying.json")["models"]
    for name, by_seed in models.items():
        layout, steps = name.split(", ")
        length = "" if steps == "3000 steps" else f", {steps}"
        for seeds, values in split_by_choice(by_seed).items():
            means = map(statistics.fmean, zip(*values, strict=True))
            figures = " | ".join(f"{mean:.3f}" for mean in means)
            assert f"| `{layout}`{length} | {seeds} | {figures} |" in page, name


def test_the_page_of_the_headline_says_how_much_lies_on_what_can_be_copied() -> None:
    content = record("copying.json")
    share_G = [count / sum(content["targets"]) for count in content["targets"]]
    mean_G = {
        name: [
            statistics.fmean(of)
            for of in zip(*split_by_choice(content["models"][name])["0 to 7"], strict=True)
        ]
        for name in ("adadada, 3000 steps", "aaaaddd, 3000 steps")
    }
    less_G = [
        share * (cut - choice) for share, cut, choice in zip(share_G, *mean_G.values(), strict=True)
    ]
    assert (
        f"Of the {sum(less_G):.3f} nats between `adadada` and `aaaaddd`, fresh seeds, "
        f"{sum(less_G[:2]):.3f} lie on tokens that can be copied"
    ) in words_of(PAGE)


def test_the_page_of_the_headline_says_that_nobody_copies_rare_pairs_of_wikitext() -> None:
    page, content = words_of(PAGE), record("copying_wikitext.json")
    shares = [count / sum(content["targets"]) for count in content["targets"]]
    says = "copied, rare pair ({:.1%}) | copied, common pair ({:.1%}) | others ({:.1%}) |"
    assert says.format(*shares) in page
    means = dict[str, list[float]]()
    for name, by_seed in content["models"].items():
        assert sorted(by_seed) == ["0", "1", "2", "3"]
        layout = name.partition(",")[0]
        means[layout] = [*map(statistics.fmean, zip(*by_seed.values(), strict=True))]
        assert f"| `{layout}` | {' | '.join(f'{mean:.3f}' for mean in means[layout])} |" in page
    behind = [means["aaaaddd"][2] - means[other][2] for other in ("adadadadadad", "adadada")]
    assert (
        "`aaaaddd` is {:.3f} nats behind `interleaved` and {:.3f} behind `adadada`".format(*behind)
    ) in page


def lasting_leads(nats: float) -> dict[tuple[str, ...], int | None]:
    """By layout, steps, rate and seed: since which step it leads `adadada` by more than `nats`."""
    rows = rows_of(RESULTS / "learning_curves.csv")
    means, less = means_of("adadada", rows), dict[tuple[str, ...], list[tuple[int, float]]]()
    for row in rows:
        behind = float(row["train_nats"]) - means[row["steps"], row["step"]]
        less.setdefault(training_of(row), []).append((int(row["step"]), behind))
    leads: dict[tuple[str, ...], int | None] = {}
    for training, points in less.items():
        last = max((at for at, (_, behind) in enumerate(points) if behind >= -nats), default=-1)
        leads[training] = points[last + 1][0] if last + 1 < len(points) else None
    return leads


def test_the_page_of_the_headline_says_when_a_layout_begins_to_lead() -> None:
    leads = lasting_leads(0.1)
    short = [step for key, step in leads.items() if key[:2] == ("aaaaddd", "3000")]
    assert sorted(step for step in short if step) == [1500, 1500, 1500, 1700, 1700, 2600]
    assert len(short) == 8
    long = {key[0]: step for key, step in leads.items() if key[1] == "6000"}
    assert (long["aaaaddd"], long["adadadadadad"]) == (1500, 3700)
    words = words_of(PAGE)
    assert "from step 1,500 (three seeds), 1,700 (two) and 2,600 on; the other two do not" in words
    assert "`aaaaddd` leads so from step 1,500 on, and `interleaved` from 3,700 on" in words
