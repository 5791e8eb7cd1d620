"""Scores of layouts by the weights of a SuperNet, kept as they come."""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from data import EvaluationStreams, TokenArray
from model import LanguageModel, Layout, Mix, Network, network_of
from model.saving import tensors_digest
from nas.derivation.base import Derived, Request
from nas.derivation.from_search import draws, read_searches
from nas.search.estimators import all_terms
from nas.statistics.paired_scores import Score, discretisation_gap, mean_score, score_of
from pipeline.plan import RunPlan
from training.checkpoint import LAST, read_weights, restore_weights
from training.evaluation import evaluate_cells
from training.run_dir import identity_hash, machine, source_digest
from training.state import TrainState
from utils.files import words_of
from utils.kept import Kept
from utils.screen import say

Labels = tuple[str, ...]


# All that a score by a SuperNet's weights passes through.
_SCORED_SOURCES = ("data", "model", "nas", "pipeline", "training", "utils")
_EVERY_S = 10.0


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
        name, scores = " ".join(labels), list[Score]()
        for net, kept in zip(self._nets, self._kept, strict=True):
            if name not in kept.values:
                score = self._pass(net, mix)
                kept.add(name, [score.nats_P.tolist(), score.tokens_P.tolist()])
            scores.append(Score(*map(np.array, kept.values[name])))
        return mean_score(scores)

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
    def _kept(self) -> list[Kept]:
        kept = [
            Kept(self.plan.search_folder(seed) / "scores.jsonl", self._key(net))
            for seed, net in zip(self.seeds, self._nets, strict=True)
        ]
        if count := len(set.intersection(*(set(one.values) for one in kept))):
            say(f"{count} layouts are scored already ({', '.join(str(one.path) for one in kept)})")
        return kept

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
            "sources": source_digest(_SCORED_SOURCES),
        }
        return identity_hash(parts)

    @cached_property
    def _nets(self) -> list[LanguageModel]:
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
        restore_weights(state, read_weights(path, identity, plan.search_steps))
    except FileNotFoundError:
        raise ValueError(
            f"{path}: not found; the SuperNet's weights are needed: run search.py with "
            f"run.seed={seed} first"
        ) from None
    return state.model.eval()
