"""What an experiment file may say, and in which words it is refused."""

import importlib
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from model import BLOCKS
from nas.baselines import CompareConfig
from pipeline import cli
from pipeline.experiment import ExperimentError, load_experiment
from tests.refusal import refused
from utils.strict_yaml import dump_yaml, read_yaml

VALID = """\
# a comment
run: {seed: 3, device: cpu}
data:
  corpus: pydoc-topics
  tokenizer: {kind: bpe, vocabulary: 1024}
model:
  n_blocks: 4
  d_model: 64
  d_ffn: 128
  candidates: [attention, {kind: dense, label: wide, d_ffn: 256}, identity]
  softmax:
    cutoffs: [200, 500]
search:
  steps: 300
  tau:
    schedule: exponential
    start: 1
    end: 3e-1
  optimiser: {lr: 1e-3, warmup_steps: 10}
retrain:
  steps: 300
  optimiser: {lr: 1e-3, warmup_steps: 10}
compare:
  baselines: [interleaved, par]
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def to_file(text):
        path = Path("x.yaml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return to_file


@pytest.fixture
def problems(write):
    def of(text, *overrides):
        with pytest.raises(ExperimentError) as caught:
            load_experiment(write(text), overrides)
        assert str(caught.value).splitlines() == caught.value.problems
        return caught.value.problems

    return of


def changed(old, new):
    assert VALID.count(old) == 1
    return VALID.replace(old, new)


def test_inputs_that_are_not_there_are_named_all_at_once_with_their_lines(write, tmp_path):
    """Beside other mistakes too, and without a look into those that are there."""
    text = changed("  corpus: pydoc-topics\n", "  corpus: files\n  files:\n    train: there.txt\n"
                   "    valid: lost.txt\n    test: folder\n").replace(
        "{kind: bpe, vocabulary: 1024}", "{kind: given, model: x.model}")  # fmt: skip
    path = write(text.replace("n_blocks: 4", "n_blocks: 0"))
    (tmp_path / "there.txt").write_bytes(b"\xff")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExperimentError) as caught:
        load_experiment(path, (), tmp_path)
    remedy = f"relative paths start from {tmp_path}: run the command from another folder, or --set"
    assert caught.value.problems == [
        f"x.yaml:7: data.files.valid: {tmp_path}/lost.txt: no such file; {remedy} "
        "data.files.valid=PATH",
        f"x.yaml:8: data.files.test: {tmp_path}/folder: is not a file; give the path of one",
        f"x.yaml:9: data.tokenizer.model: {tmp_path}/x.model: no such file; {remedy} "
        "data.tokenizer.model=PATH",
        "x.yaml:11: model.n_blocks: must be greater than or equal to 1, found 0",
    ]
    load_experiment(write(text), ())
    tree = "data={corpus: tree, tree: {folder: lost, include: ['*']}}"
    with pytest.raises(ExperimentError, match=r"--set data=.*: data.tree.folder: .*no such folder"):
        load_experiment(write(VALID), [tree], tmp_path)


@pytest.mark.parametrize("script", ["search", "derive", "retrain", "compare", "tools.corpus"])
def test_check_looks_whether_the_files_are_there_and_warns(write, capsys, script):
    main = importlib.import_module(script).main
    write(VALID).rename("mein Versuch ü.yaml")
    assert main(["mein Versuch ü.yaml", "--check", "--set", "model.window=999"]) == 0
    warned = capsys.readouterr().out.startswith("warning: attention: window 999 needs memory 998")
    assert warned == (script != "tools.corpus")
    files = "  corpus: files\n  files: {train: a, valid: b, test: c}\n"
    path = write(changed("  corpus: pydoc-topics\n", files))
    said = refused(main, capsys, path, "--check").splitlines()
    assert not Path("runs").exists()
    assert [line.split(": ")[:2] for line in said] == [
        ["x.yaml:5", f"data.files.{split}"] for split in ("train", "valid", "test")
    ]


def test_numbers_and_defaults_arrive(write):
    experiment = load_experiment(write(VALID))
    assert experiment.search.optimiser.lr == 0.001
    assert experiment.search.tau.end == 0.3
    assert experiment.search.tau.start == 1.0
    assert experiment.search.alpha.lr == "auto"
    assert experiment.derive.method == "trained"
    assert experiment.compare.seeds == [0, 1, 2]
    # Two of the three cost what the chosen layout costs.
    assert CompareConfig().baselines == ["interleaved", "interleaved_short", "random"]
    assert [each.label for each in experiment.model.candidates] == ["attention", "wide", "identity"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("n_blocks: 4", "n_blocks: 4\n  d_modle: 3",
         "8: model.d_modle: unknown key; did you mean 'd_model'?"),
        ("compare:", "tau: 3\ncompare:", "23: tau: unknown key; did you mean 'search.tau'?"),
        ("n_blocks: 4", "n_blocks: four",
         "7: model.n_blocks: must be a valid integer, found 'four'"),
        ("start: 1", "start: .inf", "17: search.tau.start: must be a finite number, found inf"),
        ("start: 1", "start: 1:30", "17: search.tau.start: must be a valid number, found '1:30'"),
        ("  tau:\n", "  alpha: {lr: atuo}\n  tau:\n",
         "15: search.alpha.lr: must be a valid number or 'auto', found 'atuo'; did you mean 'auto'"
         "?"),
        ("[200, 500]", "[500, 200]",
         "12: model.softmax.cutoffs: must be above 0 and strictly increasing, found [500, 200]"),
        ("[attention, {kind: dense", "[atention, {kind: dense",
         f"10: model.candidates[0]: kind must be one of {', '.join(BLOCKS)}; found "
         "'atention'; did you mean 'attention'?"),
        ("label: wide, d_ffn", "label: wide, n_heads",
         "10: model.candidates[1].n_heads: unknown key; kinds that have it: attention, "
         "gated_delta, linear_attention, adaptive_span, all_attention, persistent, routing"),
        ("label: wide, d_ffn", "label: gated_delta, d_ffn",
         "10: model.candidates: the label gated_delta is the name of another kind than dense; give "
         "another label"),
        ("[200, 500]", "[200, 5000]",
         "12: model.softmax.cutoffs: 5000 is not below the vocabulary 1024; give smaller "
         "cutoffs or fewer"),
        ("  d_ffn: 128\n", "", "6: model.d_ffn: missing; it has no default"),
        ("n_blocks: 4", "n_blocks: 4\n  n_blocks: 5",
         "8: model.n_blocks: given twice, first in line 7; leave one out"),
        ("n_blocks: 4", "n_blocks: 4\n  7: 5",
         "8: model: key 7: a key must be text; quote it or leave it out"),
        ("n_blocks: 4", "n_blocks: [",
         "9:8: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("n_blocks: 4", '"a\\e[1m\\nb": 4', "7: model.a\\x1b[1m\\nb: unknown key"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(problems, old, new, line):
    assert f"x.yaml:{line}" in problems(changed(old, new))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("attention, n_heads: 5, label: other",
         "n_heads: 5 does not divide d_model 64; give d_head or another n_heads"),
        ("attention, n_kv_heads: 3, label: other",
         "n_kv_heads: 3 does not divide n_heads 4; give a divisor"),
        ("routing, n_local_heads: 4",
         "n_local_heads: 4 of n_heads 4 leave no head to route; give less"),
        ("routing, clusters: 129",
         "clusters: 129 for 128 tokens (memory 64 and data.segment 64); give fewer"),
        ("mixture_of_experts, k: 5", "k: 5 is more than n_experts 4; give less"),
        ("product_key_memory, k: 33", "k: 33 is more than n_keys 32; give less"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_candidate_is_one_line(problems, options, problem):
    text = changed("identity]", f"identity, {{kind: {options}}}]")
    assert problems(text) == [f"x.yaml:10: model.candidates[3].{problem}"]


def test_all_mistakes_come_at_once_in_the_order_of_the_file(problems):
    text = changed("steps: 300\n  tau", "steps: ten\n  tau")
    text = text.replace("n_blocks: 4", "n_blocks: 0").replace("seed: 3", "sed: 3")
    assert problems(text, "search.tau.edn=1", "nonsense") == [
        "x.yaml:2: run.sed: unknown key; did you mean 'seed'?",
        "x.yaml:7: model.n_blocks: must be greater than or equal to 1, found 0",
        "x.yaml:14: search.steps: must be a valid integer, found 'ten'",
        "--set search.tau.edn=1: search.tau.edn: unknown key; did you mean 'end'?",
        f"--set nonsense: {KEY_VALUE}",
    ]


KEY_VALUE = "expected KEY=VALUE, for example search.tau.end=0.1"
SECTIONS = "run, data, model, search, derive, retrain, compare, costs, sweep"
UNSEEN = "ends a line for YAML, so a comment may end there; delete it"
EXPECTED = f"not an experiment file: expected the sections {SECTIONS}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("- a\n", f"1: {EXPECTED}; found a list"),
        ("# Title\n\nSome prose.\n", f"1: {EXPECTED}; found 'Some prose.'"),
        (
            "run: {}\na: 1\n---\nb: 1\n",
            "3:1: expected a single document in the stream, but found another document",
        ),
        ("a: 1\nb: 2  # c,\u2028c: 3\n", f"2: the character U+2028 {UNSEEN}"),
        (b"run: {}\nx: \xff\n", "2: not UTF-8 text; save the file as UTF-8"),
        ("run {seed: 1, device: cpu}\ndata: x\n", "1:21: mapping values are not allowed here"),
    ],
)
def test_a_file_that_is_no_experiment_is_one_line(problems, text, line):
    assert problems(text) == [f"x.yaml:{line}"]


def test_an_empty_file_lacks_its_sections(problems):
    missing = [f"x.yaml:1: {name}: missing; it has no default" for name in
               ("data", "model", "retrain")]  # fmt: skip
    assert problems("") == problems("", "run.seed=1") == missing


def test_yaml_1_2_core_and_nothing_else():
    read = read_yaml("[3e-4, 1e-3, .5, 5., no, on, True, 010, 0o10, 0x1F, 1_0, ~, '', 2026-01-01]")
    assert read.value == [
        3e-4, 1e-3, 0.5, 5.0, "no", "on", True, 10, 8, 31, "1_0", None, "", "2026-01-01",
    ]  # fmt: skip
    assert [type(value) for value in read.value[:4]] == [float] * 4


def test_anchors_are_allowed(write):
    text = changed("  optimiser: {lr: 1e-3, warmup_steps: 10}\nretrain",
                   "  optimiser: &o {lr: 2e-3, warmup_steps: 7}\nretrain")  # fmt: skip
    text = text.replace("  optimiser: {lr: 1e-3, warmup_steps: 10}\n", "  optimiser: *o\n")
    experiment = load_experiment(write(text), ["search.optimiser.warmup_steps=9"])
    assert experiment.retrain.optimiser.warmup_steps == 7
    assert experiment.search.optimiser.warmup_steps == 9


def test_overrides_win_create_and_replace(write):
    overrides = [
        *("search.tau.end=0.1", "derive.p=3", "compare.baselines=[random]"),
        *("search.steps=1", "search.steps=70"),
    ]
    experiment = load_experiment(write(VALID), overrides)
    assert experiment.search.tau.end == 0.1
    assert experiment.search.tau.schedule == "exponential"
    assert experiment.derive.p == 3
    assert experiment.compare.baselines == ["random"]
    assert experiment.search.steps == 70


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("search.tau.edn=0.2", "search.tau.edn: unknown key; did you mean 'end'?"),
        ("serch.steps=3", "serch: unknown key; did you mean 'search'?"),
        ("search.tua.end=1", "search.tua: unknown key; did you mean 'tau'?"),
        *((override, KEY_VALUE) for override in ("search.steps", "search..steps=3", "=3")),
        ("model.n_blocks.x=3", "model.n_blocks.x: model.n_blocks has no keys"),
        ("model.n_blocks=[",
         "model.n_blocks: the value is not YAML: while parsing a flow node, expected "
         "the node content, but found '<stream end>'"),
        ("data=", "data: must be an object, found nothing"),
        ("search.tau={end: 1, end: 2}", "search.tau.end: given twice, first in line 1; leave one "
         "out"),
        (f"run.seed={'a' * 5000}", f"run.seed: must be a valid integer, found '{'a' * 57}...'"),
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_a_mistake_in_an_override_names_the_override(problems, override, line):
    shown = override if len(override) <= 200 else f"{override[:197]}..."
    assert problems(VALID, override) == [f"--set {shown}: {line}"]


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["1e-3", "no", "010", "0o7", "~", ".inf", "1:30", "<<", "=", "a: b", "- a"])
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(
        texts,
        st.recursive(
            scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10
        ),
    )
)
def test_what_is_dumped_is_read_again(value):
    read = read_yaml(dump_yaml(value))
    assert read.problems == []
    assert read.value == value
    assert repr(read.value) == repr(value)


def arguments(experiment, run=None):
    return cli.parser("").parse_args([str(experiment), *(["--run", run] if run else [])])


@pytest.mark.parametrize(
    ("phases", "taken"),
    [
        (["search/seed-10", "search/seed-2", "retrain/par/seed-0"], "search/seed-2"),
        (["retrain/par/seed-3"], "retrain/par/seed-3"),
    ],
)
def test_a_run_directory_gives_its_saved_experiment(tmp_path, phases, taken):
    with pytest.raises(ValueError, match="give a YAML file, or run search"):
        cli.locate(arguments(tmp_path))
    for name in phases:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "experiment.yaml").touch()
    assert cli.locate(arguments(tmp_path)) == (tmp_path / taken / "experiment.yaml", tmp_path)


@pytest.mark.parametrize(
    ("overrides", "start", "end"),
    [
        (["model.window=999"], "attention: window 999 needs memory 998", "how the text is cut"),
        (["model.candidates=[attention, dense, {kind: dense, label: same}]"],
         "dense and same are the same block: they share a part of pi", "each looks less likely"),
        (["derive={method: layout, layout: a z}"],
         "derive.layout: position 2: 'z' is none of a (attention)", " (derive.py will refuse it)"),
        ([], "", ""),
        (["sweep={space: {model.n_blocks: {low: 2, high: 4}}, trials: 3}"],
         "derive.method trained trains several layouts in every trial",
         "argmax, which takes a search's likeliest, and rules train none"),
        (["sweep={space: {run.micro_batches: {low: 1, high: 2}}, trials: 3}",
          "sweep.set={derive.method: par}"], "", ""),
    ],
)  # fmt: skip
def test_what_is_seldom_meant_is_a_warning(write, overrides, start, end):
    lines = load_experiment(write(VALID), overrides).warnings()
    if not start:
        assert lines == []
    else:
        assert lines[0].startswith(f"warning: {start}")
        assert lines[0].endswith(end)
