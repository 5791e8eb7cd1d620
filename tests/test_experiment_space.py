"""A faulty space is refused when the file is read, with file, line and key; no trial meets it."""

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from optuna.samplers import RandomSampler

from pipeline.experiment import (
    Experiment,
    ExperimentError,
    dump_experiment,
    load_experiment,
    with_settings,
)
from pipeline.experiment_sweep import space_of
from pipeline.sweep.plan import baseline
from tests.runs import ROOT

SWEEPS = sorted((ROOT / "configs").glob("sweep_*.yaml"))
HEAD = """\
data: {corpus: pydoc-topics, tokenizer: {vocabulary: 1024}}
model: {n_blocks: 6, d_model: 64, d_ffn: 128}
search: {steps: 100}
retrain: {steps: 100}
sweep:
"""
TAU = "search.tau.schedule: {choices: [step, linear]}"
SLOTS = "model.n_blocks: {low: 2, high: 4}"
END = "search.tau.end: {low: 0.1, high: 1}"
SPLIT = "set: {search.alpha.data: split, search.alpha.share: 0.3}"
TRIALS = "trials: 30"


@pytest.fixture
def load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def of(space, rest=TRIALS, overrides=()):
        lines = ["space:", *(f"  {line}" for line in space), *rest.splitlines()]
        Path("x.yaml").write_text(HEAD + "".join(f"  {line}\n" for line in lines))
        return load_experiment(Path("x.yaml"), overrides)

    return of


@cache
def loaded(path: Path) -> Experiment:
    return load_experiment(path)


# The first line of a space is line 7 of the file.
CASES = [
    (["search.tau.endd: {low: 1, high: 2}"], TRIALS,
     ["7: sweep.space.search.tau.endd: unknown key; did you mean 'end'?"]),
    (["model.n_blocks.x: {low: 1, high: 2}"], TRIALS,
     ["7: sweep.space.model.n_blocks.x: model.n_blocks has no keys"]),
    (["model.n_blocks: {low: 0, high: 4}", "model.n_heads: {choices: [4, 3]}"], TRIALS,
     ["7: sweep.space.model.n_blocks: must be greater than or equal to 1, found 0 "
       "(with model.n_blocks: 0, "
      "model.n_heads",
      "8: sweep.space.model.n_heads: 3 does not divide d_model 64; give d_head"]),
    (["search.tau.end: {choices: [1, x]}", "search.estimator: {choices: [soft, sof]}"], TRIALS,
     ["7: sweep.space.search.tau.end: must be a valid number, found 'x' (with ",
      "8: sweep.space.search.estimator: must be one of auto, soft,"]),
    (["search.tau.schedule: {choices: [constant, linear]}", END],
     TRIALS, ["8: sweep.space.search.tau.end: has no effect with schedule constant"]),
    (["model.d_model: {low: 64, high: 66}"], TRIALS,
     ["6: sweep.space: model.n_heads: 4 does not divide d_model 66; give d_head or another n_heads "
      "(with model.d_model: 66)"]),
    ([TAU, "search.tau.stairs: {low: 2, high: 4, when: {search.tau.schedule: stepp}}"], TRIALS,
     ["8: sweep.space.search.tau.stairs.when.search.tau.schedule: is never stepp"]),
    ([TAU, "search.tau.stairs: {low: 2, high: 4, when: {search.tau.schedulle: step}}"], TRIALS,
     ["8: sweep.space.search.tau.stairs.when.search.tau.schedulle: must be a key above it in "
      "sweep.space; did you mean 'search.tau.schedule'?"]),
    ([END, "search.tau.stairs: {low: 2, high: 4, when: {search.tau.end: 0.5}}"], TRIALS,
     ["8: sweep.space.search.tau.stairs.when.search.tau.end: can be any number"]),
    (["search.tau.stairs: {low: 2, high: 4, when: {search.tau.schedule: step}}", TAU], TRIALS,
     ["7: sweep.space.search.tau.stairs.when.search.tau.schedule: must be a key above it"]),
    (["run.seed: {low: 2, high: 4}", "run.threads: {low: 1, high: 2}",
      "compare.random_layouts: {low: 1, high: 2}", "sweep.trials: {low: 1, high: 2}",
      "model: {choices: [1, 2]}", "run.precision: {choices: [float32, bfloat16]}"], TRIALS,
     ["7: sweep.space.run.seed: cannot be swept: sweep.seeds has",
      "8: sweep.space.run.threads: cannot be swept: ",
      "9: sweep.space.compare.random_layouts: cannot be swept: ",
      "10: sweep.space.sweep.trials: cannot be swept: a sweep cannot",
      "11: sweep.space.model: is a whole section"]),
    (["data.validation_tokens: {choices: [100, 8192]}", "data.test_tokens: {low: 100, high: 200}",
      "data.corpus: {choices: [pydoc-topics, python-stdlib]}", "data.files.valid: {choices: [a]}",
      "data.tree: {choices: [null]}",
      "data.evaluation_streams: {low: 1, high: 8}", "data.evaluation_segment: {low: 8, high: 64}",
      "data.context_tokens: {low: 0, high: 64}"], TRIALS,
     [f"{line}: sweep.space.data.{key}: cannot be swept: it decides which text is scored"
      for line, key in enumerate(
          ("validation_tokens", "test_tokens", "corpus", "files.valid", "tree",
           "evaluation_streams", "evaluation_segment", "context_tokens"), start=7)]),
    ([SLOTS], f"{TRIALS}\nset: {{data.validation_tokens: 100, data.segment: 32}}",
     ["9: sweep.set.data.validation_tokens: cannot be set: it decides which text is scored",
      "9: sweep.set.data.segment: cannot be set: it decides which text is scored"]),
    (["data.segment: {choices: [32, 64]}"], TRIALS,
     ["7: sweep.space.data.segment: cannot be swept: it decides which text is scored or in what "
      "context, and only results on the same can be compared; give data.evaluation_segment, the"]),
    (["search.tau: {choices: [{start: 1}, {start: 2}]}", END],
     TRIALS, ["8: sweep.space.search.tau.end: is a part of search.tau"]),
    ([END], f"{TRIALS}\nset: {{search.tau: {{start: 2}}}}",
     ["7: sweep.space.search.tau.end: is a part of search.tau"]),
    ([SLOTS], "trials: 3\nset: {model.n_blocks: 3, run.seed: 3}",
     ["9: sweep.set.model.n_blocks: is in sweep.space as well",
      "9: sweep.set.run.seed: cannot be set"]),
    ([SLOTS], f"{TRIALS}\n{SPLIT.replace('split', 'shared')}",
     ["9: sweep.set.search.alpha.share: has no effect with data shared"]),
    ([END], "sampler: {kind: grid}",
     ["6: sweep.space: search.tau.end has no finite number of values"]),
    (["model.n_blocks: {low: 1, high: 4000}", "model.d_ffn: {low: 1, high: 4000}"],
     "sampler: {kind: grid}", ["6: sweep.space: the grid has 16000000 points, more than 10000"]),
    (["model.candidates: {choices: [[attention, dense], [dense, identity]]}",
      "model.d_ffn: {low: 64, high: 65, when: {model.candidates: [attention, dense]}}"], TRIALS,
     ["8: sweep.space.model.d_ffn.when.model.candidates: is never attention in this space"]),
    ([SLOTS], "trials: 3\nstorage: u:secret@h/db", ["9: sweep.storage: expected a URL"]),
    # What would fail each trial, or prune none, is found before the first one has searched.
    ([SLOTS], f"{TRIALS}\nset: {{search.estimator: spos, derive.method: argmax}}",
     ["9: sweep.set.derive.method: argmax: with search.estimator spos alpha does not move"]),
    ([SLOTS], f"{TRIALS}\nset: {{derive.method: layout, derive.layout: a d}}",
     ["9: sweep.set.derive.method: layout: 'a d' has 2 blocks, model.n_blocks is 4"]),
    # What is sampled and plays no part, or stops nothing.
    (["retrain.steps: {low: 9, high: 90}"], f"{TRIALS}\npruner: {{kind: median}}",
     ["7: sweep.space.retrain.steps: cannot be swept: a pruner compares trainings at equal steps"]),
    *(([SLOTS], f"{TRIALS}\nset: {{retrain.steps: 9}}\npruner: {{kind: {pruner}}}",
       [f"6: sweep.space: sweep.pruner: {pruner.split(',')[0]}: stops no trial before step "
        f"{step}, and a retraining has 9 (retrain.steps) (with retrain.steps: 9, model.n_blocks: "])
      for pruner, step in (("median", 500), ("successive_halving, min_steps: 10", 10))),
    (["model.dropout: {low: 0, high: 0.1}", END], f"{TRIALS}\nset: {{derive.method: par}}",
     ["8: sweep.space.search.tau.end: has no effect: by their derive.method trials search"]),
    (["model.candidates: {choices: [[dense], [dense, attention]]}"], TRIALS,
     ["7: sweep.space.model.candidates: dense alone leaves a search no choice"]),
    *(([SLOTS], f"{TRIALS}\nset: {{{settings}}}", [f"9: sweep.set.{key}: layouts would be timed"])
      for key, settings in (
          ("derive.budget.decode", "derive.budget.decode: 0.9x, derive.budget.flops: 0.9x"),
          ("derive.budget.throughput", "derive.budget.throughput: 2x"),
          ("search.cost.target", "search.cost.target: 0.9x"),
      )),
    ([SLOTS], f"{TRIALS}\nseeds: [0, 1]\n"
              "set: {derive.method: par, retrain.start: m, model.dropout: 0}",
     ["10: sweep.set.retrain.start: seeds 0, 1 begin with one model"]),
    (["retrain.fine_tune.steps: {low: 9, high: 90}"], f"{TRIALS}\npruner: {{kind: median}}",
     ["7: sweep.space.retrain.fine_tune.steps: cannot be swept: a pruner compares trainings at"]),
    ([SLOTS], f"{TRIALS}\nset: {{derive.searches: [0, 1]}}",
     ["9: sweep.set.derive.searches: a trial searches with one seed at a time; leave it out"]),
    ([SLOTS], f"{TRIALS}\nset: {{data.tokenizer: {{lower_case: true}}}}",
     ["9: sweep.set.data.tokenizer: data.tokenizer.lower_case: trials are compared by bits per"]),
]  # fmt: skip


@pytest.mark.parametrize(("space", "rest", "wanted"), CASES, ids=lambda v: str(v)[:50])
def test_a_faulty_space_is_named_with_its_line_and_key(load, space, rest, wanted):
    with pytest.raises(ExperimentError) as caught:
        load(space, rest)
    found = caught.value.problems
    assert len(found) == len(wanted), found
    for line, start in zip(found, wanted, strict=True):
        assert line.startswith(f"x.yaml:{start}"), line


@pytest.mark.parametrize(
    ("space", "rest"),
    [
        # 128 / 4 and 72 / 4 fit, whatever the file's own numbers are
        (["model.d_model: {low: 64, high: 72, step: 4}", "model.n_heads: {choices: [2, 4]}"],
         TRIALS),
        # alone each is wrong with the file's own value of the other
        (["model.d_model: {choices: [63, 126]}", "model.n_heads: {choices: [3, 7]}"], TRIALS),
        ([SLOTS], f"{TRIALS}\n{SPLIT}"),
        (["run.precision: {choices: [float32, bfloat16]}", "run.micro_batches: {low: 1, high: 2}",
          "data.batch: {low: 4, high: 8}", "model.window: {choices: [null, 16]}"], TRIALS),
        ([TAU, "search.tau.stairs: {low: 2, high: 4, when: {search.tau.schedule: step}}"], TRIALS),
        # without a search nothing is asked of one, and what it may cost is not measured
        (["model.dropout: {low: 0, high: 0.1}"],
         f"{TRIALS}\nset: {{derive.method: par, model.rezero: true, search.cost.target: 1ms}}"),
        # 100 + 500 steps
        ([SLOTS], f"{TRIALS}\nset: {{retrain.fine_tune: {{steps: 500, lr: 1.0e-5}}}}\n"
                  "pruner: {kind: median}"),
    ],
)  # fmt: skip
def test_a_good_space_is_taken(load, space, rest):
    assert load(space, rest).sweep is not None


@pytest.mark.parametrize("cut", ["validation_tokens", "test_tokens"])
@pytest.mark.parametrize(
    "key", ["data.tokenizer.vocabulary: {choices: [512, 1024]}",
            "data.tokenizer: {choices: [{vocabulary: 512}, {kind: bytes}]}"],
)  # fmt: skip
def test_tokenizers_are_compared_on_the_same_text_only(load, key, cut):
    assert load([key]).sweep is not None
    words = r"^x\.yaml:7: sweep\.space\.data\.tokenizer.* cannot be swept: it decides"
    with pytest.raises(ExperimentError, match=words) as caught:
        load([key], overrides=[f"data.{cut}=8192"])
    assert "give null for both cuts, data.validation_tokens and data.test_tokens" in str(
        caught.value
    )


def test_how_training_text_is_cut_may_be_swept_where_the_scored_text_stays(load):
    space = ["data.segment: {choices: [32, 64]}", "data.batch: {low: 4, high: 8}",
             "data.random_offset: {choices: [true, false]}"]  # fmt: skip
    assert load(space, overrides=["data.evaluation_segment=64"]).sweep is not None


LONG = f"u:{'secret' * 50}@h/db"


@pytest.mark.parametrize(
    "setting",
    ["sweep.storage=postgres:u:secret@h/db", f"sweep.storage=postgres:{LONG}",
     "sweep.storage=u:secret@h/db", f"sweep.storage=[postgres://{LONG}]",
     "sweep.storag=postgresql://u:secret@h/db", "postgresql://u:secret@h/db",
     f"sweep.sampler.kind=postgresql://{LONG}", "sweep.storage='postgresql://u:secret@h/db"],
)  # fmt: skip
def test_no_complaint_shows_a_password(load, setting):
    with pytest.raises(ExperimentError) as caught:
        load([SLOTS], overrides=[setting])
    assert "sec" not in str(caught.value)


def test_a_sweep_can_be_taken_back_and_survives_the_round_trip(load):
    experiment = load([TAU])
    Path("y.yaml").write_text(dump_experiment(experiment))
    assert load_experiment(Path("y.yaml")) == experiment
    assert load([TAU], TRIALS, ["sweep=null"]).sweep is None
    with pytest.raises(ExperimentError, match=r"^--set sweep\.trials=null: sweep\.trials: missing"):
        load([TAU], TRIALS, ["sweep.trials=null"])


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_draw_of_a_shipped_space_is_an_experiment(path, seed):
    experiment = loaded(path)
    space = space_of(experiment)
    values = space.draw(RandomSampler(seed=seed))
    trial = with_settings(experiment, {**experiment.sweep.set, **values}, space.inactive(values))
    assert trial.sweep is None
    for key, value in values.items():
        here = trial
        for part in key.split("."):
            here = getattr(here, part)
        if not isinstance(value, list):
            assert here == value
            assert type(here) is type(value)


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_the_baseline_of_a_shipped_sweep_is_its_own_file(path):
    experiment = loaded(path)
    space = space_of(experiment)
    params, reason = baseline(experiment, space)
    assert params is not None, reason
    values = space.values(params)
    assert with_settings(experiment, values, space.inactive(values)) == experiment.model_copy(
        update={"sweep": None}
    )


@pytest.mark.parametrize(
    ("space", "overrides", "reason"),
    [
        (["search.tau.end: {low: 0.5, high: 1}"], ["search.tau.end=0.3"],
         "search.tau.end is 0.3 there, outside its range or choices"),
        (["search.tau.end: {low: 0.5, high: 1}"], [], "search.tau.end is 0.3 there"),
        (["model.window: {low: 4, high: 9}"], [], "model.window is nothing there"),
        (["search.alpha.lr: {low: 0.5, high: 1}"], [], "search.alpha.lr is 'auto' there"),
        (["model.candidates: {choices: [[dense, identity], [dense, attention]]}"], [],
         "model.candidates is a list"),
        ([TAU, "search.tau.end: {low: 0.2, high: 1, when: {search.tau.schedule: step}}"],
         ["search.tau.end=0.4"], "it sets search.tau.end, which 'when' leaves out"),
    ],
)  # fmt: skip
def test_a_file_outside_its_own_space_has_no_baseline_and_says_why(load, space, overrides, reason):
    experiment = load(space, TRIALS, overrides)
    params, found = baseline(experiment, space_of(experiment))
    assert params is None
    assert reason in found


def test_a_choice_is_known_in_whatever_way_the_file_spells_it(load):
    choices = "{choices: [[dense, identity], [attention, {kind: dense, label: dense}, identity]]}"
    experiment = load([f"model.candidates: {choices}"])
    params, _ = baseline(experiment, space_of(experiment))
    assert params is not None
    assert space_of(experiment).values(params)["model.candidates"][0] == "attention"


def test_settings_are_put_in_and_taken_out(load):
    experiment = load([SLOTS], TRIALS, ["search.tau={schedule: step, stairs: 3}"])
    changed = with_settings(experiment, {"search.tau.schedule": "cosine"}, ["search.tau.stairs"])
    assert (changed.search.tau.schedule, changed.search.tau.stairs) == ("cosine", 5)
    assert changed.sweep is None
    assert changed.model == experiment.model
    assert with_settings(experiment, {}, ["retrain.fine_tune.lr"]).retrain == experiment.retrain
    fine = with_settings(experiment, {"retrain.fine_tune": {"steps": 3, "lr": 1e-4}})
    assert fine.retrain.fine_tune.steps == 3
    with pytest.raises(ExperimentError, match=r"^search\.tau\.stairs: has no effect with schedule"):
        with_settings(experiment, {"search.tau.schedule": "cosine"})
    with pytest.raises(ExperimentError, match=r"^model\.n_blocks\.x: model\.n_blocks has no keys"):
        with_settings(experiment, {"model.n_blocks.x": 3})
    with pytest.raises(ExperimentError, match=r"^derive\.method: must be one of"):
        with_settings(experiment, {"derive.method": "argmin"})


@pytest.mark.parametrize(
    ("space", "overrides", "params"),
    [
        (["search.tau.end: {low: 0.05, high: 1}"], [], {"search.tau.end": 0.3}),
        (["search.tau.end: {choices: [0.1, 0.3]}"], [], {"search.tau.end": 0.3}),
        (["search.tau.stairs: {low: 2, high: 9}"], ["search.tau.schedule=step"],
         {"search.tau.stairs": 5}),
        (["search.alpha.share: {low: 0.1, high: 0.5}"], ["search.alpha.data=split"],
         {"search.alpha.share": 0.2}),
        (["search.optimiser.min_lr_ratio: {low: 0, high: 1}"], [],
         {"search.optimiser.min_lr_ratio": 0.0}),
        (["search.optimiser.eps: {choices: [null, 1.0e-6]}"], [], {"search.optimiser.eps": None}),
    ],
)  # fmt: skip
def test_the_baseline_has_the_value_in_use_of_a_key_that_the_file_leaves_out(
    load, space, overrides, params
):
    experiment = load(space, TRIALS, overrides)
    assert baseline(experiment, space_of(experiment)) == (params, "")


def test_the_sweep_of_the_docs_has_a_baseline_with_readmes_file_of_one_s_own_text(tmp_path):
    def block(page, start):
        blocks = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        (text,) = (block for block in blocks if block.startswith(start))
        return text

    text, sweep = block("README.md", "data:"), block("docs/sweeps.md", "sweep:")
    file = tmp_path / "readme.yaml"
    file.write_text(text + sweep)
    experiment = load_experiment(file)
    params, reason = baseline(experiment, space_of(experiment))
    assert params is not None, reason
    assert params["search.tau.end"] == 0.3
    assert params["model.n_blocks"] == experiment.model.n_blocks == 8
