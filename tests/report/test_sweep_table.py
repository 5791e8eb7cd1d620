"""The tables of a sweep, letter by letter."""

import csv
import io

from report.sweep.tables import csv_text, text_table

BITS = [{"name": "retrained", "unit": "bits per byte of validation"}]
BOTH = [*BITS, {"name": "flops", "unit": "FLOPs per token"}]


def small(sweeper):
    return [
        sweeper.row(0, values=[2.05], params={"search.tau.end": 0.3, "model.slots": 6}),
        sweeper.row(
            1,
            values=[2.01234567],
            params={"search.tau.end": 0.123456789, "model.slots": 8, "search.tau.stairs": 3},
            seeds={"0": [2.0], "10": [2.02469134], "2": None},
            latency_ms=3.456,
            attempts=2,
            went_on_from=["retrain step 40"],
            threads=2,
            gpu="1",
            torch="2.9.0",
            commit="abc1234",
        ),
        sweeper.row(
            2,
            state="failed",
            values=None,
            reason='out of memory,\n"killed"',
            params={"model.slots": 4},
            seeds={},
            layout=None,
            parameters=None,
            flops_per_token=None,
            elapsed_s=None,
            host=None,
        ),
    ]


def test_the_text_table_is_this(sweeper):
    assert text_table(small(sweeper)[::-1], BITS) == (
        "     trial   state      retrained  layout      MFLOP  latency  slots     end  stairs\n"
        "* baseline          bits per byte          per token       ms\n"
        "------------------------------------------------------------------------------------\n"
        "         1    done         2.0123     adi       2.41     3.46      8  0.1235       3\n"
        "        *0    done         2.0500     adi       2.41        -      6     0.3       -\n"
        "         2  failed              -       -          -        -      4       -       -\n"
        'trial 2 failed: out of memory, "killed"'
    )


def test_the_csv_is_this(sweeper):
    assert csv_text(small(sweeper)[::-1], BITS) == (
        "number,state,reason,baseline,retrained,model.slots,search.tau.end,search.tau.stairs,"
        "seed_0.retrained,seed_2.retrained,seed_10.retrained,layout,network,parameters,"
        "flops_per_token,latency_ms,attempts,went_on_from,elapsed_s,host,threads,gpu,torch,commit\n"
        "0,done,,true,2.05,6,0.3,,2.05,,,a d i,,1234567,2410000.0,,1,,12.5,pc,,,,\n"
        "1,done,,false,2.01234567,8,0.123456789,3,2.0,,2.02469134,a d i,,1234567,2410000.0,3.456,"
        "2,retrain step 40,12.5,pc,2,1,2.9.0,abc1234\n"
        '2,failed,"out of memory,\n""killed""",false,,4,,,,,,,,,,,1,,,,,,,\n'
    )


def test_several_objectives_have_a_column_each(sweeper):
    rows = sweeper.many(3, goals=2)
    first = next(csv.DictReader(io.StringIO(csv_text(rows, BOTH))))
    assert [float(first["retrained"]), float(first["flops"])] == rows[0]["values"]
    assert float(first["seed_0.flops"]) == rows[0]["values"][1]
    head, units = text_table(rows, BOTH).splitlines()[:2]
    assert head.split()[:5] == ["trial", "state", "retrained", "flops", "layout"]
    assert "MFLOP per token" in units


def test_seeds_with_several_layouts_are_shown_as_they_are(sweeper):
    rows = [sweeper.row(0, layout="a d i / d d a", parameters=1234.5)]
    assert " adi/dda " in text_table(rows, BITS)
    (first,) = csv.DictReader(io.StringIO(csv_text(rows, BITS)))
    assert (first["layout"], first["parameters"]) == ("a d i / d d a", "1234.5")


def test_at_most_twelve_trials_are_shown_and_the_baseline_is_one_of_them(sweeper):
    rows = [sweeper.row(n, values=[3.0 - 0.1 * n]) for n in range(20)]
    lines = text_table(rows, BITS).splitlines()
    shown = [line.split()[0] for line in lines[3:15]]
    assert shown == [*(str(n) for n in range(19, 8, -1)), "*0"]
    assert lines[15:] == ["and 8 more: trials.csv"]


def test_a_table_with_much_in_it_fits_a_hundred_columns_and_says_what_is_missing(sweeper):
    params = {f"search.some.quite_long_key_{n}": "v" * 40 for n in range(9)}
    rows = [
        sweeper.row(n, params=params, layout="a d " * 16, state="failed", reason="x" * 300)
        for n in range(9)
    ]
    lines = text_table(rows, BITS).splitlines()
    assert max(map(len, lines)) <= 100
    assert "and 4 more failed: trials.csv" in lines
    assert lines[-1].startswith("no room for quite_long_key_")
    assert lines[-1].endswith(": trials.csv")


def test_nothing_reaches_the_terminal_that_it_would_obey(sweeper):
    row = sweeper.row(
        1, state="failed", values=None, reason="\x1b[2Jgone\r", params={"k.\x1b[31m": "\x07"}
    )
    assert text_table([row], BITS).replace("\n", "").isprintable()


def test_no_trial_is_said_and_its_csv_has_a_head_only():
    assert text_table([], BITS) == "no trial yet"
    assert csv_text([], BITS).splitlines() == [
        "number,state,reason,baseline,retrained,layout,network,parameters,flops_per_token,latency_ms,"
        "attempts,went_on_from,elapsed_s,host,threads,gpu,torch,commit"
    ]
