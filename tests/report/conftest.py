"""Run folders as search, retraining and comparison leave them, small and made by hand."""

import csv
import io
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from report.sweep.trials import Goal, Summary, TrialRow
from utils.text import layout_title

LABELS = ("attention", "dense", "identity")
# Many, as in configs/all_blocks.yaml.
KINDS = (
    "attention", "grouped", "local", "adaptive_span", "all_attention", "routing", "gated_delta",
    "linear_attention", "short_conv", "dense", "persistent", "mixture_of_experts",
    "product_key_memory", "identity",
)  # fmt: skip
CSV_HEAD = (
    "name,layout,n,parameters,flops_per_token,latency_ms,nats_per_token,perplexity,"
    "bits_per_byte,valid_nats_per_token,role,word_perplexity,relative_latency,"
    "relative_perplexity,matched\n"
)
CSV_ROWS = (
    "argmax-0,a d a d i d,1,1234567,2410000.0,3.456,4.1,60.3403,2.05,4.0,chosen,,,,\n"
    "interleaved,a d a d a d,1,1300000,2810000.0,,4.12,61.5592,2.0561,4.02,baseline,,,,\n"
)


_KINDS = {"a": "attention", "d": "dense", "i": "identity"}


def _cell(key: str, text: str) -> str | float | None:
    return text if key in ("name", "layout", "role", "matched") else float(text) if text else None


class Maker:
    """Makes the files of a run under `run`."""

    def __init__(self, run: Path) -> None:
        self.run = run
        run.mkdir()

    def pi_file(
        self, folder: Path, *, slots: int = 6, steps: int = 60, labels: tuple[str, ...] = LABELS
    ) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        start = steps // 4
        step_N = np.arange(steps)
        moved_N = np.clip((step_N - start) / max(steps - 1 - start, 1), 0, 1)
        goal_LC = np.random.default_rng(0).normal(0, 2, (slots, len(labels)))
        alpha_NLC = (moved_N[:, None, None] * goal_LC).astype(np.float32)
        pi_NLC = np.exp(alpha_NLC) / np.exp(alpha_NLC).sum(2, keepdims=True)
        np.savez(
            folder / "pi.npz",
            step=step_N.astype(np.int64) + 1,
            pi=pi_NLC.astype(np.float32),
            alpha=alpha_NLC,
            tau=(1 - 0.7 * moved_N).astype(np.float32),
            labels=np.array(labels),
            alpha_start=np.int64(start + 1),
        )
        return folder / "pi.npz"

    def metrics_file(self, folder: Path, *, nets: tuple[str, ...] = ("soft", "onehot")) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[dict[str, Any]] = [
            {"kind": "train", "step": step, "loss_nats": 5.0, "perplexity": 400.0 - step}
            for step in range(0, 60, 10)
        ]
        rows += [
            {"kind": "valid", "step": step, "net": net, "perplexity": 300.0 - step}
            for step in (30, 59)
            for net in nets
        ]
        path = folder / "metrics.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    def search(self, *, seed: int = 0, drawn: tuple[str, ...] = (), **sizes: Any) -> Path:
        """Files of a search, and stand-ins for the figures `drawn`, which take long to draw."""
        folder = self.run / "search" / f"seed-{seed}"
        self.pi_file(folder, **sizes)
        (folder / "pi.csv").touch()
        self.metrics_file(folder)
        (folder / "experiment.yaml").write_text(
            "data: {corpus: pydoc-topics}\nsearch: {steps: 60, estimator: soft}\n"
        )
        (folder / "environment.json").write_text(json.dumps({"device": "cpu", "torch": "2.13.0"}))
        for name in drawn:
            (folder / "figures").mkdir(exist_ok=True)
            (folder / "figures" / name).write_bytes(b"drawn")
        return folder

    def architecture(self, name: str, layout: tuple[str, ...], *, chosen: bool) -> None:
        content = {
            "version": 1,
            "name": name,
            "blocks": [{"kind": label, "label": label} for label in layout],
            "costs": {"parameters": 1_234_567, "flops_per_token": 2_410_000.0},
            "evidence": {"method": "argmax", "pi": [{label: 0.625} for label in layout]},
        }
        (self.run / "architectures").mkdir(exist_ok=True)
        (self.run / "architectures" / f"{name}.json").write_text(json.dumps(content))
        if chosen:
            (self.run / "architecture.json").write_text(json.dumps(content))

    def retraining(self, name: str, seed: int = 0) -> Path:
        folder = self.run / "retrain" / name / f"seed-{seed}"
        self.metrics_file(folder, nets=("model",))
        scores = {"nats_per_token": 4.125, "perplexity": 61.87, "bits_per_byte": 2.0625}
        result = {"name": name, "seed": seed, "parameters": 1_234_567, "elapsed_s": 90.0}
        (folder / "result.json").write_text(json.dumps({**result, "valid": scores, "test": scores}))
        return folder

    def comparison(self, rows: str = CSV_ROWS, **said: Any) -> Path:
        """Write a comparison; `said` is what comparison.json says otherwise."""
        summary = {
            "saving": "", "verdict": "not testable with one seed",
            "latency_note": "median of 30 passes", "letters": _KINDS,
            "remarks": [], "reference": "interleaved", "intervals": {}, "latency_interval_ms": {},
        }  # fmt: skip
        table = [
            {key: _cell(key, text) for key, text in row.items()}
            for row in csv.DictReader(io.StringIO(CSV_HEAD + rows))
        ]
        for row in table:
            kinds = [_KINDS.get(word, word) for word in str(row["layout"]).split()]
            row["title"] = layout_title(kinds, str(row["name"]))
        content = {"rows": table, **summary, **said}
        (self.run / "comparison.json").write_text(json.dumps(content))
        return self.run


@pytest.fixture(scope="module")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """The same for a run that several tests only look at."""
    return Maker(tmp_path_factory.mktemp("once") / "run")


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    """Makes the parts of a run in `tmp_path / "run"`."""
    return Maker(tmp_path / "run")


BITS = Goal("retrained", "bits per byte of validation")
FLOPS = Goal("flops", "FLOPs per token")
SPACE: dict[str, BaseDistribution] = {
    "search.tau.schedule": CategoricalDistribution(["linear", "cosine", "step"]),
    "search.tau.end": FloatDistribution(0.05, 1.0, log=True),
    "search.tau.start": FloatDistribution(1.0, 5.0),
    "model.n_blocks": IntDistribution(4, 8, step=2),
    "search.tau.stairs": IntDistribution(2, 8),
}


class Sweeper:
    """Makes sweeps in memory: more slots are better, stairs only with the schedule `step`."""

    def row(self, number: int, **changed: Any) -> TrialRow:
        """A finished trial, unless `state` says otherwise."""
        values = [2.0] if changed.get("state", "done") == "done" else None
        values = changed.get("values", values)
        known = {
            "state": "done", "baseline": number == 0, "values": values,
            "params": {"model.n_blocks": 6}, "seeds": {"0": values} if values else {},
            "layout": "a d i", "parameters": 1_234_567, "flops_per_token": 2.41e6,
            "elapsed_s": 12.5, "host": "pc",
        }  # fmt: skip
        return TrialRow(number=number, **{**known, **changed})

    def many(self, count: int, *, goals: int = 1, broken: bool = True) -> list[TrialRow]:
        """`count` trials; with `broken` some failed, were pruned or still run."""
        chance, rows = random.Random(0), []
        for number in range(count):
            params: dict[str, Any] = {
                "search.tau.schedule": chance.choice(["linear", "cosine", "step"]),
                "search.tau.end": math.exp(chance.uniform(math.log(0.05), 0.0)),
                "search.tau.start": chance.uniform(1.0, 5.0),
                "model.n_blocks": chance.choice([4, 6, 8]),
            }
            if params["search.tau.schedule"] == "step":
                params["search.tau.stairs"] = chance.randint(2, 8)
            bits = 2.2 - 0.02 * params["model.n_blocks"] + chance.gauss(0.0, 0.01)
            flops = 3e5 * params["model.n_blocks"] + chance.uniform(0, 3e5)
            state = "done"
            if broken and number:
                state = {3: "failed", 5: "pruned", 8: "running"}.get(number % 10, "done")
            values = [bits, flops][:goals] if state == "done" else None
            reason = "killed for memory" if state == "failed" else None
            rows.append(self.row(number, state=state, values=values, params=params, reason=reason))
        return rows

    def sweep(self, rows: list[TrialRow], goals: int = 1, **changed: Any) -> Summary:
        """What a sweep's page is made of."""
        known: dict[str, Any] = {
            "name": "tau", "objectives": [BITS, FLOPS][:goals], "rows": rows,
            "facts": {"sampler": "tpe", "storage": "sqlite:///study.db"},
            "confirm": "CONFIRM",
        }  # fmt: skip
        return Summary(**{**known, **changed})


@pytest.fixture(scope="session")
def sweeper() -> Sweeper:
    """Makes sweeps in memory and their files."""
    return Sweeper()
