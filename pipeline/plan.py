"""The plan of a run: what an experiment and its text come to, resolved once for all phases."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from data import ContextBatches, EvaluationStreams, Prepared, Split, prepare
from model.blocks import Candidate
from model.language_model import Costs, LanguageModel, Mix
from model.slot import run as run_slot
from nas.costs.budget import LayoutCost
from nas.derivation.base import Request, context_limit
from nas.derivation.config import DeriveConfig
from nas.search.config import check_schedules
from nas.search.plan import SearchPlan
from pipeline.devices import find_device, gpu_of, missed_gpu, set_precision
from pipeline.experiment import Experiment, dump_experiment
from pipeline.run_files import retrain_folder, run_folders, search_folder, unfinished
from training.config import steps_in
from training.distributed import ALONE, Ranks
from training.evaluation import Evaluation, evaluate, evaluate_shared
from training.launch import launched
from training.optim import Stages, stages_of
from training.run_dir import Identity, environment, identity_hash, is_claimed
from training.runtime import compiled_run, keep_freed_memory
from training.step import Forward
from training.trackers import TRACKERS, Opener, TrackedPhase, check_trackers
from utils.screen import say

# Of the validation text.
FEWEST_SEGMENTS = 4


@dataclass(frozen=True)
class RunPlan:
    """One experiment with its text prepared and its device chosen.

    What follows from them is computed when it is first asked for, and once: a retraining must not
    be refused because the schedules of a search do not fit. A setting that does not fit the text
    raises ValueError then. `ranks` are the processes that train together.
    """

    experiment: Experiment
    run_dir: Path
    prepared: Prepared
    device: torch.device
    ranks: Ranks = ALONE

    @property
    def seed(self) -> int:
        """Of the run; the folders of its phases are named by it."""
        return self.experiment.run.seed

    def with_seed(self, seed: int) -> "RunPlan":
        """The same plan with another seed."""
        run = self.experiment.run.model_copy(update={"seed": seed})
        return replace(self, experiment=self.experiment.model_copy(update={"run": run}))

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those of every slot, with every option filled in."""
        return self.experiment.model.completed_candidates()

    @cached_property
    def slots(self) -> list[tuple[Candidate, ...]]:
        """The candidates of each slot of the SuperNet."""
        return [self.candidates] * self.experiment.model.n_blocks

    @cached_property
    def sizes(self) -> dict[str, Any]:
        """What the SuperNet and every derived network have in common, as LanguageModel takes it."""
        model = self.experiment.model
        return {
            "d_model": model.d_model,
            "vocabulary_size": self.prepared.tokenizer.vocabulary_size,
            "softmax": model.softmax,
            "tie_blocks": model.tie_blocks,
            "options": model.options,
        }

    def network(self, slots: Sequence[Sequence[Candidate]]) -> LanguageModel:
        """A language model with these candidates in its slots."""
        return LanguageModel(slots, **self.sizes, dropout=self.experiment.model.dropouts())

    def supernet(self) -> LanguageModel:
        """The network in which every slot holds all candidates, on the device."""
        torch.manual_seed(self.seed)
        return self.network(self.slots).to(self.device)

    @cached_property
    def costs(self) -> LayoutCost:
        """Forward FLOPs per token of each candidate, and of embedding and softmax."""
        with torch.device("meta"):
            return self.flops_of(self.network([self.candidates]))

    def flops_of(self, model: LanguageModel) -> LayoutCost:
        """As `costs`, of the candidates in the first slot of a model."""
        table = self._flops(model)
        return LayoutCost("flops", table.slots[0], table.embedding + table.softmax)

    def flops_per_token(self, model: LanguageModel) -> float:
        """Of a forward pass at the experiment's batch and segment."""
        return self._flops(model).total

    def _flops(self, model: LanguageModel) -> Costs:
        data, mass = self.experiment.data, self.cluster_mass(model.softmax.bounds[:-1])
        return model.flops_per_token(data.batch, data.segment, mass)

    def cluster_mass(self, cutoffs: tuple[int, ...]) -> tuple[float, ...]:
        """Part of the training tokens in the head and in each tail."""
        counts_V = self.prepared.counts_V
        bounds = pairwise((0, *cutoffs, len(counts_V)))
        return tuple(int(counts_V[low:high].sum()) / int(counts_V.sum()) for low, high in bounds)

    @property
    def adds_nothing(self) -> dict[str, bool]:
        """Which candidates, by label, cost nothing because they add nothing."""
        return {label: flops == 0 for label, flops in self.costs.by_label.items()}

    @cached_property
    def search_batches(self) -> tuple[ContextBatches, ContextBatches | None]:
        """The text of the weights, and alpha's own: with `split` the end of the training text."""
        tokens, alpha = self.prepared.tokens["train"], self.experiment.search.alpha
        if alpha.data != "split":
            return self.training_batches(), None
        share, least = alpha.share, self.experiment.data.batch + 1
        cut = round(len(tokens) * (1 - share))
        if min(cut, len(tokens) - cut) < least:
            raise ValueError(
                f"search.alpha.share: {share} of {len(tokens)} training tokens leaves {cut} to "
                f"the weights and {len(tokens) - cut} to alpha; {least} are needed on each side"
            )
        return self.training_batches(tokens[:cut]), self.training_batches(tokens[cut:])

    @cached_property
    def search_steps(self) -> int:
        """Steps of the SuperNet's weights; 0: no search is meant."""
        config = self.experiment.search
        if not config.has_length:
            return 0
        steps = steps_in(config.steps, config.epochs, self.search_batches[0].per_epoch)
        try:
            check_schedules(config, steps)
        except ValueError as error:
            raise ValueError(f"search.{error}") from None
        return steps

    def schedules(self, memory: int = 0) -> SearchPlan:
        """The schedules of the search; draws are held for longer where there is memory (rows)."""
        segment = self.experiment.data.segment
        return SearchPlan(self.experiment.search, self.search_steps, memory, segment)

    @cached_property
    def stages(self) -> Stages:
        """The stages of a retraining."""
        try:
            return stages_of(self.experiment.retrain, self.training_batches().per_epoch)
        except ValueError as error:
            raise ValueError(f"retrain.{error}") from None

    @cached_property
    def forward(self) -> Forward:
        """How losses are computed."""
        run = self.experiment.run
        return Forward(
            self.device,
            run.precision,
            run.micro_batches,
            run.recompute,
            self.ranks,
            None if run.attention == "auto" else run.attention,
            compiled_run(self.device) if run.compile else run_slot,
        )

    def training_batches(self, tokens: Any = None) -> ContextBatches:
        """The training text, or a part of it, as contiguous streams."""
        data = self.experiment.data
        return ContextBatches(
            self.prepared.tokens["train"] if tokens is None else tokens,
            batch=data.batch,
            segment=data.segment,
            offset_seed=self.seed if data.random_offset else None,
        )

    def cut(self) -> dict[str, int]:
        """How evaluation texts are cut: streams, tokens of a segment, unscored tokens before."""
        data = self.experiment.data
        return {
            "streams": data.evaluation_streams,
            "segment": data.evaluation_segment or data.segment,
            "context": data.context_tokens,
        }

    def streams(self, split: Split) -> EvaluationStreams:
        """A split as evaluation streams."""
        return EvaluationStreams(
            self.prepared.tokens[split], **self.cut(), words=self.prepared.words(split)
        )

    def evaluate(
        self, model: LanguageModel, streams: EvaluationStreams, mix: Mix | None = None
    ) -> Evaluation:
        """Score a split once."""
        lengths = self.prepared.tokenizer.byte_length_V
        byte_length_V = None if lengths is None else torch.tensor(lengths)
        return evaluate(model, streams, byte_length_V=byte_length_V, device=self.device, mix=mix)

    def validate(
        self, streams: EvaluationStreams, model: LanguageModel, mix: Mix | None = None
    ) -> Evaluation:
        """Score a split once, all processes together."""
        return evaluate_shared(self.ranks, streams, lambda own: self.evaluate(model, own, mix))

    def inputs(self) -> dict[str, str]:
        """Hashes of the input files, for a phase's identity."""
        return {"corpus": self.prepared.corpus.digest, "tokenizer": self.prepared.tokenizer.digest}

    def identity(self, **sections: Any) -> dict[str, Any]:
        """Whose folder a phase's is: its own sections, precision, data and input files."""
        # Files count by their hash, not by where they lie.
        data = self.experiment.data.model_dump(mode="json", exclude={"files", "tree"})
        del data["tokenizer"]["model"]
        sections |= {"precision": self.experiment.run.precision, "data": data}
        return {**sections, **self.inputs()}

    @cached_property
    def search_identity(self) -> dict[str, Any]:
        """Whose folder a search's is; all seeds of an experiment have the same."""
        model, search = self.experiment.model, self.experiment.search
        return self.identity(model=model.identity(), search=search.identity())

    def files(self) -> dict[str, str]:
        """What each phase saves in its own folder before step 0."""
        settings = {"seed", "micro_batches", "attention", "compile"}
        extra = {
            "corpus": self.experiment.data.corpus,
            "corpus_digest": self.prepared.corpus.digest,
            "corpus_notes": self.prepared.notes,
            **self.experiment.run.model_dump(include=settings),
            "ranks": self.ranks.world,
        }
        return {
            "experiment.yaml": dump_experiment(self.experiment),
            "environment.json": environment(self.device, extra),
        }

    def search_folder(self, seed: int) -> Path:
        """Where the search of a seed writes."""
        return search_folder(self.run_dir, seed)

    def searched_folder(self, seed: int) -> Path:
        """The folder of a search to read; ValueError where it is another's, or has not ended."""
        folder = self.search_folder(seed)
        is_claimed(folder, self.search_identity)
        if folder in unfinished(self.run_dir):
            raise ValueError(
                f"{folder}: the search has not ended; start search.py again to finish it"
            )
        return folder

    def request(self, config: DeriveConfig, seeds: Sequence[int]) -> Request:
        """What a derivation from these searches is given, but for scores."""
        return Request(
            config=config,
            candidates=self.candidates,
            slots=len(self.slots),
            flops_per_token=self.costs,
            trajectories={seed: self.searched_folder(seed) / "pi.npz" for seed in seeds},
            alpha_learned=self.experiment.search.alpha_learns,
            tie_blocks=self.sizes["tie_blocks"],
            token_shift=self.experiment.model.token_shift,
            limits=context_limit(self.candidates, len(self.slots), config.least_context),
        )

    def retrain_folder(self, name: str) -> Path:
        """Where the retraining of one architecture, with the plan's seed, writes."""
        return retrain_folder(self.run_dir, name, self.seed)

    def trackers(self, folder: Path, identity: Identity) -> list[Opener]:
        """What opens the trackers of a phase that the experiment names."""
        check_trackers(self.experiment.run.trackers)
        run, place = self.run_dir.resolve().name, folder.relative_to(self.run_dir).as_posix()
        phase = TrackedPhase(
            folder=folder,
            name=f"{run}/{place}",
            # Two runs of one experiment are not one, and a run that was moved is the same.
            run_id=identity_hash({"identity": identity, "run": run, "folder": place})[:16],
            settings=self.experiment.model_dump(mode="json", exclude={"sweep"}),
        )
        return [partial(TRACKERS[name], phase) for name in self.experiment.run.trackers]


def set_up(experiment: Experiment, run_dir: Path, ranks: Ranks = ALONE) -> RunPlan:
    """Choose device and threads and prepare the text."""
    run, data = experiment.run, experiment.data
    if data.batch < ranks.world:
        raise ValueError(
            f"data.batch: {data.batch} streams cannot be shared out to {ranks.world} "
            "processes; start no more than there are streams, or raise data.batch"
        )
    device = find_device(run.device)
    if device.type == "cuda" and (launch := launched()) is not None:
        device = gpu_of(launch, run.device)
    if run.threads is not None or ranks.world > 1:
        torch.set_num_threads(run.threads or ranks.threads)
    if device.type == "cpu":
        keep_freed_memory()
    progress = say if ranks.is_first else lambda line: None
    remarks = (set_precision(run.precision, device), missed_gpu() if run.device == "auto" else None)
    for remark in filter(None, remarks):
        progress(remark)
    progress(f"{data.corpus}: reading the text")
    # One process of each machine builds what is not in the cache, the others find it there.
    if ranks.local_rank:
        ranks.wait()
    prepared = prepare(data, Path.cwd(), progress=progress, is_run=run_folders(run_dir))
    if not ranks.local_rank:
        ranks.wait()
    valid, segment = len(prepared.tokens["valid"]), data.evaluation_segment or data.segment
    if valid < FEWEST_SEGMENTS * segment:
        raise ValueError(
            f"data: {valid} validation tokens are fewer than {FEWEST_SEGMENTS} segments of "
            f"{segment}, by which nothing can be chosen; use a longer text, or shorter segments"
        )
    return RunPlan(experiment, run_dir, prepared, device, ranks)
