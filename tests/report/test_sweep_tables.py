"""Trials of a sweep are ordered, named, told in sentences and in tables, letter by letter."""

import csv
import io
import random

import pytest

from report.sweep.tables import csv_text, headline, text_table
from report.sweep.trials import Summary, baseline_of, counts, done, front, in_order, short_keys
from tests.report.conftest import BITS, FLOPS


def test_done_trials_come_by_value_and_the_others_failed_first(sweeper):
    states = ["done", "running", "done", "failed", "waiting", "done"]
    values = [[3.0], None, [1.0], None, None, [1.0]]
    rows = [
        sweeper.row(number, state=state, values=value)
        for number, (state, value) in enumerate(zip(states, values, strict=True))
    ]
    assert [row.number for row in done(rows)] == [2, 5, 0]
    assert [row.number for row in in_order(rows)] == [2, 5, 0, 3, 1, 4]
    assert baseline_of(rows).number == 0
    assert counts(rows) == "3 done, 1 failed, 1 running, 1 waiting"
    assert counts([]) == "no trial yet"


def test_the_front_is_what_comparing_all_pairs_finds(sweeper):
    chance = random.Random(1)
    rows = [sweeper.row(n, values=[float(chance.randint(0, 9)) for _ in range(3)])
            for n in range(60)]  # fmt: skip
    kept = {row.number for row in front(rows)}
    assert 1 < len(kept) < 60
    for row in rows:
        beaten = False
        for other in rows:
            worse = [b for a, b in zip(row.values, other.values, strict=True) if b > a]
            beaten |= not worse and other.values != row.values
        assert (row.number in kept) == (not beaten)


def test_keys_are_as_short_as_they_can_be():
    keys = ["search.optimiser.rate", "retrain.optimiser.rate", "search.tau.end", "end"]
    assert short_keys(keys) == {
        "search.optimiser.rate": "search.optimiser.rate",
        "retrain.optimiser.rate": "retrain.optimiser.rate",
        "search.tau.end": "tau.end",
        "end": "end",
    }
    assert short_keys(["model.n_blocks"], least=2) == {"model.n_blocks": "model.n_blocks"}


def small(sweeper):
    return [
        sweeper.row(0, values=[2.05], params={"search.tau.end": 0.3, "model.n_blocks": 6}),
        sweeper.row(
            1,
            values=[2.01234567],
            params={"search.tau.end": 0.123456789, "model.n_blocks": 8, "search.tau.stairs": 3},
            seeds={"0": [2.0], "10": [2.02469134]},
            attempts=2,
        ),
        sweeper.row(
            2,
            state="failed",
            reason='out of memory,\n"killed"',
            params={"model.n_blocks": 4},
            layout=None,
            parameters=None,
            flops_per_token=None,
            elapsed_s=None,
            host=None,
        ),
    ]


def test_the_text_table_is_this(sweeper):
    assert text_table(small(sweeper)[::-1], [BITS]) == (
        "trial   state  retrained  layout  settings\n"
        "------------------------------------------------------------------\n"
        "    1    done     2.0123     adi  end 0.1235, n_blocks 8, stairs 3\n"
        "   *0    done     2.0500     adi  end 0.3, n_blocks 6\n"
        '    2  failed          -       -  out of memory,\\n"killed"\n'
        "* the file's own values"
    )


def test_the_csv_is_this(sweeper):
    assert csv_text(small(sweeper), [BITS]) == (
        "number,state,reason,baseline,retrained,model.n_blocks,search.tau.end,search.tau.stairs,"
        "seed_0.retrained,seed_10.retrained,layout,parameters,flops_per_token,attempts,elapsed_s,"
        "host\n"
        "0,done,,true,2.05,6,0.3,,2.05,,a d i,1234567,2410000.0,1,12.5,pc\n"
        "1,done,,false,2.01234567,8,0.123456789,3,2.0,2.02469134,a d i,1234567,2410000.0,2,12.5,"
        "pc\n"
        '2,failed,"out of memory,\n""killed""",false,,4,,,,,,,,1,,\n'
    )
    row = sweeper.row(0, params={"a": None, "b": True})
    (first,) = csv.DictReader(io.StringIO(csv_text([row], [BITS])))
    assert (first["a"], first["b"]) == ("null", "true")


def test_several_objectives_have_a_column_each(sweeper):
    rows = sweeper.many(3, goals=2)
    first = next(csv.DictReader(io.StringIO(csv_text(rows, [BITS, FLOPS]))))
    assert [float(first["retrained"]), float(first["flops"])] == rows[0].values
    assert float(first["seed_0.flops"]) == rows[0].values[1]
    head, _, best, *_ = text_table(rows, [BITS, FLOPS]).splitlines()
    assert head.split()[:5] == ["trial", "state", "retrained", "flops", "layout"]
    assert best.split()[3].endswith("M")


def test_trials_that_came_to_one_training_are_named(sweeper):
    ends = [{"search.tau.end": end} for end in (0.3, 0.1, 0.2, 0.1, 0.4, 0.3)]
    networks = ["x", "x", "y", "x", "x", "x"]
    rows = [
        sweeper.row(n, values=[2.1 if n == 4 else 2.0], params=ends[n], network=networks[n])
        for n in range(6)
    ]
    _, twins = headline(Summary("s", [BITS], rows, {}, None))
    assert twins == (
        "Trial 0 trained the same network to the same result as trial 1, 3: nothing tells their "
        "settings apart."
    )


def test_at_most_twelve_trials_are_shown_and_the_baseline_is_one_of_them(sweeper):
    rows = [sweeper.row(n, values=[3.0 - 0.1 * n]) for n in range(20)]
    lines = text_table(rows, [BITS]).splitlines()
    shown = [line.split()[0] for line in lines[2:14]]
    assert shown == [*(str(n) for n in range(19, 8, -1)), "*0"]
    assert lines[14:] == ["* the file's own values", "and 8 more: trials.csv"]
    assert text_table([], [BITS]) == "no trial yet"


def test_a_table_with_much_in_it_fits_a_hundred_columns(sweeper):
    params = {f"search.some.quite_long_key_{n}": "v" * 40 for n in range(9)}
    rows = [
        sweeper.row(n, params=params, layout="a d " * 16, state="failed", reason="\x1b[2J" * 80)
        for n in range(9)
    ]
    lines = text_table(rows, [BITS]).splitlines()
    assert max(map(len, lines)) <= 100
    assert "".join(lines).isprintable()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "No trial has finished: no trial yet."),
        ([{"state": "failed"}] * 2, "No trial has finished: 2 failed."),
        ([{"values": [2.0]}, {"values": [2.0]}],
         "Lowest retrained: trial 0 with 2.0000 bits per byte of validation, which is the "
         "baseline."),
        ([{"values": [2.05]}, {"values": [2.0297]}],
         "Lowest retrained: trial 1 with 2.0297 bits per byte of validation, 0.0203 below the "
         "baseline's 2.0500."),
        ([{"state": "failed"}, {"values": [2.1]}],
         "Lowest retrained: trial 1 with 2.1000 bits per byte of validation, with no finished "
         "baseline to compare it with."),
    ],
)  # fmt: skip
def test_the_headline_fits_what_there_is(sweeper, rows, said):
    rows = [sweeper.row(n, **row) for n, row in enumerate(rows)]
    assert headline(sweeper.sweep(rows)) == [said]


def test_several_objectives_have_the_lowest_of_each(sweeper):
    values = [[2.05, 3e6], [2.0, 4e6], [2.2, 1e6], [2.3, 5e6]]
    rows = [sweeper.row(n, values=v) for n, v in enumerate(values)]
    assert headline(sweeper.sweep(rows, 2)) == [
        "3 of 4 finished trials are beaten by none in all of retrained, flops (the Pareto front).",
        "Lowest retrained: trial 1 with 2.0000 bits per byte of validation, 0.0500 below the "
        "baseline's 2.0500.",
        "Lowest flops: trial 2 with 1.00M FLOPs per token, 2.00M below the baseline's 3.00M.",
    ]
