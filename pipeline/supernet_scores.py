"""Scores of layouts by the weights of a SuperNet, kept as they come."""

import hashlib
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from data import EvaluationStreams, TokenArray
from model import (
    Architecture,
    Evidence,
    LanguageModel,
    Mix,
    Network,
    TimedCost,
    layout_letters,
    network_of,
)
from model.saving import tensors_digest
from nas.costs.budget import tokens_per_second
from nas.derivation import Considered, Derived, Layout, Request
from nas.derivation.from_search import draws
from nas.derivation.searched import read_searches
from nas.search.estimators import all_terms
from nas.statistics.paired_scores import Score, discretisation_gap, mean_score, score_of
from pipeline.context import RunPlan, say
from pipeline.resources import check_supernet_size
from training.checkpoint import read_weights, restore_weights
from training.checkpoints import LAST
from training.evaluation import evaluate_cells
from training.run_dir import identity_hash, machine
from training.state import TrainState
from utils.files import append_line, csv_of, words_of

_SHOWN = 10
Labels = tuple[str, ...]
_ROOT = Path(__file__).resolve().parent.parent
# All that a score by a SuperNet's weights passes through.
_PACKAGES = ("data", "model", "nas", "pipeline", "training", "utils")
_EVERY_S = 10.0


def considered_csv(considered: Sequence[Considered]) -> str:
    """All scored layouts in the order in which they were scored; differences paired by text."""
    best = min(considered, key=_nats)
    rows = []
    for scored in considered:
        less, error = scored.score.less(best.score)
        rows.append(
            {
                "layout": layout_letters(scored.layout),
                "log_pi": round(scored.log_pi, 6),
                "nats_per_token": round(scored.score.nats_per_token, 6),
                "standard_error": round(scored.score.standard_error, 6),
                "less_best": round(less, 6),
                "less_best_error": round(error, 6),
                "flops_per_token": scored.flops_per_token,
            }
        )
    return csv_of(rows, list(rows[0]))


def considered_text(considered: Sequence[Considered]) -> str:
    """The best of them for the screen."""
    ranked = sorted(considered, key=_nats)
    letters = [layout_letters(scored.layout) for scored in ranked[:_SHOWN]]
    width = max(map(len, ["layout", *letters]))
    lines = [f"{'layout':<{width}}  {'log pi':>8}  {'nats':>8}  {'error':>7}  less the best"]
    for layout, scored in zip(letters, ranked, strict=False):
        score, (less, error) = scored.score, scored.score.less(ranked[0].score)
        lines.append(
            f"{layout:<{width}}  {scored.log_pi:>8.3f}  "
            f"{score.nats_per_token:>8.4f}  {score.standard_error:>7.4f}  "
            f"{less:+.4f} ({error:.4f})"
        )
    if len(ranked) > _SHOWN:
        lines.append(f"and {len(ranked) - _SHOWN} more")
    return "\n".join(lines)


def _nats(scored: Considered) -> float:
    return scored.score.nats_per_token


def describe(architecture: Architecture) -> str:
    """Layout, confidence per slot, costs, gap and caveats, for the screen."""
    evidence = architecture.evidence or Evidence(method="unknown")
    costs = architecture.costs
    lines = [f"layout {architecture.letters()}   ({architecture.name})"]
    alike = evidence.agreement.slots if evidence.agreement else None
    for slot, (pi, margin) in enumerate(zip(evidence.pi, evidence.margins, strict=True)):
        shown = "  ".join(f"{label} {value:.3f}" for label, value in pi.items())
        agree = "" if alike is None else f"  pairs alike {alike[slot]:.2f}"
        lines.append(f"  slot {slot:>2}  {shown}  margin {margin:.3f}{agree}")
    if costs is not None:
        lines.append(
            f"{costs.parameters:,} parameters, {costs.flops_per_token / 1e6:.3f} MFLOP per token"
        )
        lines += map(_timed_text, costs.times)
    if evidence.budget is not None:
        lines.append(f"within {evidence.budget}")
    if (gap := evidence.gap) is not None:
        nets = {"soft": gap.soft, f"sampled x {gap.draws}": gap.sampled, "one-hot": gap.one_hot}
        parts = ", ".join(
            f"{name} {measured.nats_per_token:.4f} ({measured.standard_error:.4f})"
            for name, measured in nets.items()
        )
        lines += [
            f"discretisation gap, nats on {gap.tokens:,} validation tokens (standard error over "
            f"the text, not over searches): {parts}",
            f"perplexity of one-hot over soft: {gap.ratio:.4f} ({gap.ratio_error:.4f})",
        ]
    return "\n".join([*lines, *evidence.caveats])


def _timed_text(time: TimedCost) -> str:
    tokens = [time.key.get(name, "") for name in ("batch", "segment")]
    # A file from elsewhere may hold any words there.
    if time.name == "throughput" and all(one.isdecimal() and len(one) < 10 for one in tokens):
        count = tokens_per_second(math.prod(map(int, tokens)), time.ms)
        shown, side = f"{count} tokens per second", "least"
        parts = [time.reference_ms / ms for ms in (time.ms, time.most_ms)]
    else:
        shown, side = f"{time.ms:.4g} ms", "most"
        parts = [ms / time.reference_ms for ms in (time.ms, time.most_ms)]
    return (
        f"{time.name} {shown}, {parts[0]:.3f}x of {time.reference} (at {side} {parts[1]:.3f}x), "
        "measured in turn"
    )


@dataclass
class ScoreCache:
    """The scores of one SuperNet on one text; a line is added for each, and none is ever changed.

    The file at `path` may hold lines of other keys too. `key` is the hash of all that a score
    depends on but the layout.
    """

    path: Path
    key: str
    scores: dict[Labels, Score] = field(default_factory=dict)

    def add(self, labels: Labels, score: Score) -> None:
        """Keep a score, and append it to the file."""
        row = {
            "key": self.key,
            "layout": list(labels),
            "nats": score.nats_P.tolist(),
            "tokens": score.tokens_P.tolist(),
        }
        append_line(self.path, json.dumps(row | {"crc32": _checksum(row)}))
        self.scores[labels] = score


def open_scores(path: Path, key: str) -> ScoreCache:
    """The scores of a key that a file holds; an empty cache where there is no file.

    Lines whose checksum does not hold are left out, so what they said is scored again: a kill may
    have torn the last one, which then gets its line end.

    Raises:
        ValueError: something else than a file is there.
    """
    if not path.exists():
        return ScoreCache(path, key)
    if not path.is_file():
        raise ValueError(f"{path}: is not a file; remove it")
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        append_line(path, "")
    return ScoreCache(path, key, dict(_scores_of(content, key)))


def _scores_of(content: bytes, key: str) -> Iterator[tuple[Labels, Score]]:
    for line in content.splitlines():
        try:
            row = json.loads(line)
            if row.pop("crc32") == _checksum(row) and row["key"] == key:
                nats_P, tokens_P = (np.array(row[name], np.float64) for name in ("nats", "tokens"))
                yield tuple(row["layout"]), Score(nats_P, tokens_P)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue


def _checksum(row: Mapping[str, Any]) -> int:
    return crc32(json.dumps(row, sort_keys=True).encode())


@dataclass
class SupernetScores:
    """Scores of networks, layouts and mixtures on the validation text; each layout is scored once.

    With several searches a score is the mean over their SuperNets. The weights are those of the
    last step, which are loaded when the first score is asked for; ValueError says where they are
    not there or damaged. A layout's score is kept in the search's folder as soon as it is there:
    the same command goes on from what was scored.

    Attributes:
        seeds: of the searches.
        tokens: how many tokens of the validation text are read; None: all.
    """

    plan: RunPlan
    seeds: Sequence[int]
    tokens: int | None = None
    _scores: dict[Network, dict[Labels, Score]] = field(default_factory=dict)
    _told_s: float = field(default_factory=time.monotonic)

    def score(self, layout: Layout) -> Score:
        """The score of a layout's network: the mean over its layouts that were scored so far.

        The SuperNet has other weights for each of them, and none is nearer to the network.
        """
        score = self.score_of_layout(layout)
        scores = list(self._scores[self._network(layout)].values())
        return score if len(scores) == 1 else mean_score(scores)

    def score_of_layout(self, layout: Layout) -> Score:
        """The score of a layout alone: in every slot its candidate, with weight 1."""
        scores = self._scores.setdefault(self._network(layout), {})
        labels = tuple(candidate.label for candidate in layout)
        if labels not in scores:
            scores[labels] = self._one_hot(labels)
            now_s = time.monotonic()
            if now_s - self._told_s > _EVERY_S:
                self._told_s = now_s
                count = sum(map(len, self._scores.values()))
                say(f"{count} layouts scored with the SuperNet's weights")
        return scores[labels]

    def _network(self, layout: Layout) -> Network:
        return network_of(layout, self.plan.sizes["tie_slots"])

    def _one_hot(self, labels: Labels) -> Score:
        numbers = {candidate.label: k for k, candidate in enumerate(self.plan.candidates)}
        mix: Mix = [[(numbers[label], None)] for label in labels]
        for net, score_cache in zip(self._nets, self._caches, strict=True):
            if labels not in score_cache.scores:
                score_cache.add(labels, self._pass(net, mix))
        return mean_score([score_cache.scores[labels] for score_cache in self._caches])

    def soft(self, pi_RLC: NDArray[Any]) -> Score:
        """The score of the nets that hold every candidate with its pi, without noise.

        Each of the R SuperNets was trained under its own pi.
        """
        mixes = [
            all_terms(torch.from_numpy(pi_LC).to(self.plan.device))
            for pi_LC in pi_RLC.astype(np.float32)
        ]
        return mean_score([self._pass(*pair) for pair in zip(self._nets, mixes, strict=True)])

    def _pass(self, net: LanguageModel, mix: Mix) -> Score:
        nats_NB, tokens_NB = evaluate_cells(net, self._streams, device=self.plan.device, mix=mix)
        return score_of(nats_NB.numpy(), tokens_NB.numpy())

    @cached_property
    def _text(self) -> TokenArray:
        return self.plan.prepared.tokens["valid"][: self.tokens]

    @cached_property
    def _streams(self) -> EvaluationStreams:
        return EvaluationStreams(self._text, **self.plan.cut())

    @cached_property
    def _caches(self) -> list[ScoreCache]:
        caches = [
            open_scores(self.plan.search_folder(seed) / "scores.jsonl", self._key(net))
            for seed, net in zip(self.seeds, self._nets, strict=True)
        ]
        if count := len(set.intersection(*(set(cache.scores) for cache in caches))):
            say(f"{count} layouts are scored already ({', '.join(str(c.path) for c in caches)})")
        return caches

    def _key(self, net: LanguageModel) -> str:
        # The search's identity knows what the weights do not show, such as a window or a number of
        # heads. A commit would not do: every changed tree has the same one, and without git there
        # is none.
        parts = {
            "search": identity_hash(self.plan.search_identity),
            "weights": tensors_digest(net.state_dict()),
            "tokens": hashlib.sha256(np.ascontiguousarray(self._text).tobytes()).hexdigest(),
            "cut": self.plan.cut(),
            "machine": machine(self.plan.device),
            "sources": source_digest(),
        }
        return identity_hash(parts)

    @cached_property
    def _nets(self) -> list[LanguageModel]:
        check_supernet_size(self.plan)
        seeds = ", ".join(map(str, self.seeds))
        say(f"scoring by the SuperNet's weights (search {seeds}) on the validation text")
        return [load_supernet(self.plan.with_seed(seed)) for seed in self.seeds]


def with_gap(supernet_scores: SupernetScores, request: Request, derived: Derived) -> Derived:
    """Add the discretisation gap; say why where the SuperNet's weights are not to be had.

    With several searches each SuperNet has its own pi in the soft net, and layouts are drawn from
    pi of their mean alpha, as the derived one was found.
    """
    config = request.config
    searched = read_searches(request, config.method)
    choices = draws(searched.pi_LC, config.draws, np.random.default_rng(config.seed))
    evidence: dict[str, Any]
    try:
        soft = supernet_scores.soft(searched.pi_RLC)
        layouts = [request.networks.layout(choice) for choice in choices]
        drawn = [supernet_scores.score_of_layout(layout) for layout in layouts]
        one_hot = supernet_scores.score_of_layout(derived.layout)
        evidence = {"gap": discretisation_gap(soft, drawn, one_hot)}
    except (ValueError, OSError) as error:
        evidence = {"caveats": (f"discretisation gap: not measured: {words_of(error)}",)}
    return replace(derived, evidence=derived.evidence.model_copy(update=evidence))


def load_supernet(plan: RunPlan) -> LanguageModel:
    """The SuperNet of the finished search with the plan's seed, at its last step.

    Raises:
        ValueError: the search is not finished, of another experiment, or its weights are damaged.
    """
    seed = plan.seed
    path = plan.searched_folder(seed) / LAST
    alpha_LC = nn.Parameter(torch.zeros(len(plan.slots), len(plan.candidates)))
    state = TrainState(plan.supernet(), {}, {}, {"alpha": alpha_LC})
    try:
        identity = identity_hash(plan.search_identity)
        restore_weights(state, read_weights(path, state, identity, plan.search_steps))
    except FileNotFoundError:
        raise ValueError(
            f"{path}: not found; the SuperNet's weights are needed: run search.py with "
            f"run.seed={seed} first"
        ) from None
    except (ValueError, OSError) as error:
        raise ValueError(
            f"{words_of(error)}; start search.py again with run.seed={seed}, which mends it or "
            "says what is wrong"
        ) from None
    return state.model.eval()


@cache
def source_digest(root: Path = _ROOT, packages: tuple[str, ...] = _PACKAGES) -> str:
    """SHA-256 of the Python files that decide a score, as they were at the first call.

    What `packages` names may be a folder or a single file.
    """
    digest = hashlib.sha256()
    for path in sorted(path for part in packages for path in _python_files(root / part)):
        content = path.read_bytes()
        # With the length, so that no text can move from one file to the next unseen.
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _python_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else [*place.rglob("*.py")]
