"""Scores by the weights of finished searches' SuperNets, without any training."""

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

from assembly.lengths import search_steps
from assembly.models import build_supernet
from assembly.score_cache import Labels, ScoreCache, open_scores
from assembly.searching import search_folder, search_identity, searched_folder
from assembly.size import check_supernet_size
from assembly.source_digest import source_digest
from assembly.workbench import Workbench, say, with_seed
from data import EvaluationStreams, TokenArray
from model import LanguageModel, Mix, Network, network_of
from model.saving import tensors_digest
from nas.derivation import Derived, Layout, Request
from nas.derivation.gap import discretisation_gap
from nas.derivation.pi import draws
from nas.derivation.searched import read_searches
from nas.search.estimators import all_terms
from nas.statistics.paired_scores import Score, mean_score, score_of
from training.checkpoint import read_weights, restore_weights
from training.evaluation import evaluate_cells
from training.loop import TrainState
from training.resume import LAST
from training.run_dir import identity_hash, machine
from utils.files import words_of

_EVERY_S = 10.0


@dataclass
class Inherited:
    """Scores of networks, layouts and mixtures on the validation text; each layout is scored once.

    With several searches a score is the mean over their SuperNets. The weights are those of the
    last step, which are loaded when the first score is asked for. A layout's score is kept in the
    search's folder as soon as it is there: the same command goes on from what was scored.

    Attributes:
        bench: the experiment.
        seeds: of the searches.
        tokens: how many tokens of the validation text are read; None: all.
    """

    bench: Workbench
    seeds: Sequence[int]
    tokens: int | None = None
    _scores: dict[Network, dict[tuple[str, ...], Score]] = field(default_factory=dict)
    _said_s: float = field(default_factory=time.monotonic)

    def score(self, layout: Layout) -> Score:
        """The score of a layout's network: the mean over its layouts that were scored so far.

        The SuperNet has other weights for each of them, and none is nearer to the network.

        Raises:
            ValueError: a search's weights are not there, or damaged.
        """
        own = self.score_of_layout(layout)
        scores = list(self._scores[self._network(layout)].values())
        return own if len(scores) == 1 else mean_score(scores)

    def score_of_layout(self, layout: Layout) -> Score:
        """The score of a layout alone: in every slot its candidate, with weight 1.

        Raises:
            ValueError: a search's weights are not there, or damaged.
        """
        scores = self._scores.setdefault(self._network(layout), {})
        key = tuple(candidate.label for candidate in layout)
        if key not in scores:
            scores[key] = self._one_hot(key)
            self._tell()
        return scores[key]

    def _network(self, layout: Layout) -> Network:
        return network_of(layout, self.bench.experiment.model.tie_slots)

    def _one_hot(self, key: Labels) -> Score:
        """Of a layout by its labels; what a search's folder keeps of it is not scored again."""
        candidates = self.bench.experiment.model.completed_candidates()
        labels = [candidate.label for candidate in candidates]
        mix: Mix = [[(labels.index(label), None)] for label in key]
        for net, cache in zip(self._nets, self._caches, strict=True):
            if key not in cache.scores:
                cache.add(key, self._pass(net, mix))
        return mean_score([cache.scores[key] for cache in self._caches])

    def soft(self, pi_RLC: NDArray[Any]) -> Score:
        """The score of the nets that hold every candidate with its pi, without noise.

        Args:
            pi_RLC: of each of the R searches; a SuperNet was trained under its own.
        """
        scores = []
        for net, pi_LC in zip(self._nets, pi_RLC.astype(np.float32), strict=True):
            scores.append(self._pass(net, all_terms(torch.from_numpy(pi_LC).to(self.bench.device))))
        return mean_score(scores)

    def _pass(self, net: LanguageModel, mix: Mix) -> Score:
        nats_NB, tokens_NB = evaluate_cells(net, self._streams, device=self.bench.device, mix=mix)
        return score_of(nats_NB.numpy(), tokens_NB.numpy())

    def _tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._said_s > _EVERY_S:
            self._said_s = now_s
            count = sum(map(len, self._scores.values()))
            say(f"{count} layouts scored with the SuperNet's weights")

    @cached_property
    def _text(self) -> TokenArray:
        return self.bench.prepared.tokens["valid"][: self.tokens]

    @cached_property
    def _streams(self) -> EvaluationStreams:
        return EvaluationStreams(self._text, **self.bench.cut())

    @cached_property
    def _caches(self) -> list[ScoreCache]:
        caches = [
            open_scores(
                search_folder(self.bench, seed) / "scores.jsonl",
                _score_key(self.bench, net, self._text),
            )
            for seed, net in zip(self.seeds, self._nets, strict=True)
        ]
        if count := len(set.intersection(*(set(cache.scores) for cache in caches))):
            say(f"{count} layouts are scored already ({', '.join(str(c.path) for c in caches)})")
        return caches

    @cached_property
    def _nets(self) -> list[LanguageModel]:
        check_supernet_size(self.bench)
        seeds = ", ".join(map(str, self.seeds))
        say(f"scoring by the SuperNet's weights (search {seeds}) on the validation text")
        return [load_supernet(self.bench, seed) for seed in self.seeds]


def _score_key(bench: Workbench, net: LanguageModel, tokens: TokenArray) -> str:
    """Hash of all that a score depends on but the layout, to the last bit.

    The search's identity knows what the weights do not show, such as a window or a number of heads.
    A commit would not do: every changed tree has the same one, and without git there is none.
    """
    parts = {
        "search": identity_hash(search_identity(bench)),
        "weights": tensors_digest(net.state_dict()),
        "tokens": hashlib.sha256(np.ascontiguousarray(tokens).tobytes()).hexdigest(),
        "cut": bench.cut(),
        "machine": machine(bench.device),
        "sources": source_digest(),
    }
    return identity_hash(parts)


def with_gap(inherited: Inherited, request: Request, derived: Derived) -> Derived:
    """Add the discretisation gap; say why where the SuperNet's weights are not to be had.

    With several searches each SuperNet has its own pi in the soft net, and layouts are drawn from
    pi of their mean alpha, as the derived one was found.
    """
    config = request.config
    searched = read_searches(request, config.method)
    drawn = [
        tuple(request.candidates[k] for k in choice)
        for choice in draws(searched.pi_LC, config.draws, config.seed)
    ]
    try:
        soft = inherited.soft(searched.own_pi_RLC)
        gap = discretisation_gap(inherited.score_of_layout, soft, drawn, derived.layout)
    except (ValueError, OSError) as error:
        caveat = f"discretisation gap: not measured: {words_of(error)}"
        return replace(derived, evidence=derived.evidence.model_copy(update={"caveats": (caveat,)}))
    evidence = derived.evidence.model_copy(update={"gap": gap})
    return replace(derived, evidence=evidence)


def load_supernet(bench: Workbench, seed: int) -> LanguageModel:
    """The SuperNet of a finished search, at its last step.

    Raises:
        ValueError: the search is not finished, of another experiment, or its weights are damaged.
    """
    bench = with_seed(bench, seed)
    path = searched_folder(bench, seed) / LAST
    slots, candidates = bench.experiment.model.slots, bench.experiment.model.candidates
    alpha_LC = nn.Parameter(torch.zeros(slots, len(candidates)))
    state = TrainState(build_supernet(bench), {}, {}, {"alpha": alpha_LC})
    try:
        identity = identity_hash(search_identity(bench))
        restore_weights(state, read_weights(path, state, identity, search_steps(bench)))
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
