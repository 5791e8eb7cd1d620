"""What the phases of one run share: experiment, text, device, processes, folder."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from data import ContextBatches, DataConfig, EvaluationStreams, Prepared, Split, prepare
from hpo.config import without_password
from model import LanguageModel, Mix, ModelConfig, SoftmaxConfig, optimal_cutoffs
from model.slot import run as run_slot
from pipeline.experiment import Experiment, dump_experiment
from pipeline.run_folders import run_folders
from training.distributed import ALONE, Ranks
from training.evaluation import Evaluation, evaluate, evaluate_shared
from training.launch import Launch, launched
from training.run_dir import environment
from training.runtime import compiled_run, keep_freed_memory
from training.step import Forward


def find_device(name: str, key: str = "run.device") -> torch.device:
    """The device of a name; auto is a GPU where there is one.

    Raises:
        ValueError: it is not there; the message begins with `key`.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"{key}: {name} is not there ({torch.cuda.device_count()} CUDA devices found); "
            "use cpu or auto"
        )
    return device


def own_gpu(name: str, launch: Launch) -> torch.device:
    """The GPU of one of several processes."""
    there = torch.cuda.device_count()
    if name not in ("auto", "cuda") or launch.local_world > there:
        raise ValueError(
            f"run.device: {name} with {launch.local_world} processes and {there} GPUs on this "
            "machine; each process takes one GPU: start no more, with run.device=auto or cuda, or "
            "give cpu"
        )
    device = torch.device("cuda", launch.local_rank)
    torch.cuda.set_device(device)
    return device


@dataclass(frozen=True)
class Workbench:
    """One experiment with its text prepared and its device chosen.

    Attributes:
        experiment: all settings.
        run_dir: where the run writes.
        prepared: the text.
        device: where the model is trained.
        settings: what `--set` changed, as far as the next command must be told it again.
        ranks: the processes that train together.
    """

    experiment: Experiment
    run_dir: Path
    prepared: Prepared
    device: torch.device
    settings: tuple[str, ...] = ()
    ranks: Ranks = ALONE

    @property
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

    @property
    def own_streams(self) -> int:
        """How many of the streams of a batch this process trains on."""
        return self.ranks.count(self.experiment.data.batch)

    @cached_property
    def byte_length_V(self) -> Tensor | None:
        """Bytes of raw text that each id stands for; None where text may be lost."""
        length_V = self.prepared.tokenizer.byte_length_V
        return None if length_V is None else torch.tensor(length_V)

    @cached_property
    def softmax(self) -> SoftmaxConfig:
        """The softmax with its cutoffs in numbers, also where the experiment says auto.

        Raises:
            ValueError: the vocabulary is too small for so many clusters.
        """
        return softmax_of(self.experiment.model, self.experiment.data, self.prepared)

    def streams(self, split: Split) -> EvaluationStreams:
        """A split as evaluation streams."""
        return EvaluationStreams(
            self.prepared.tokens[split], **self.cut(), words=self.prepared.words(split)
        )

    def cut(self) -> dict[str, int]:
        """How evaluation texts are cut: streams, tokens of a segment, unscored tokens before."""
        data = self.experiment.data
        return {
            "streams": data.evaluation_streams,
            "segment": data.evaluation_segment or data.segment,
            "warm": data.warm_tokens,
        }

    def evaluate(
        self, model: LanguageModel, streams: EvaluationStreams, mix: Mix | None = None
    ) -> Evaluation:
        """Score a split once."""
        return evaluate(
            model, streams, byte_length_V=self.byte_length_V, device=self.device, mix=mix
        )

    def validate(
        self, model: LanguageModel, streams: EvaluationStreams, mix: Mix | None = None
    ) -> Evaluation:
        """Score a split once, all processes together."""
        return evaluate_shared(self.ranks, streams, lambda own: self.evaluate(model, own, mix))

    def training_batches(self, tokens: Any = None) -> ContextBatches:
        """The training text, or a part of it, as contiguous streams."""
        data = self.experiment.data
        tokens = self.prepared.tokens["train"] if tokens is None else tokens
        return ContextBatches(
            tokens,
            batch=data.batch,
            segment=data.segment,
            offset_seed=self.experiment.run.seed if data.random_offset else None,
        )

    def inputs(self) -> dict[str, str]:
        """Hashes of the input files, for a phase's identity."""
        return {
            "corpus": self.prepared.corpus_digest,
            "tokenizer": self.prepared.tokenizer.digest,
        }

    def data_identity(self) -> dict[str, Any]:
        """The data section as far as it makes a phase what it is; files count by their hash."""
        section = self.experiment.data.model_dump(
            mode="json", exclude={"files", "tree", "addresses"}
        )
        del section["tokenizer"]["model"]
        return section

    def files(self) -> dict[str, str]:
        """What each phase saves in its own folder before step 0."""
        extra = {
            "corpus": self.experiment.data.corpus,
            "corpus_digest": self.prepared.corpus_digest,
            "corpus_notes": self.prepared.notes,
            "seed": self.experiment.run.seed,
            "micro_batches": self.experiment.run.micro_batches,
            "attention": self.experiment.run.attention,
            "compile": self.experiment.run.compile,
            "ranks": self.ranks.world,
        }
        return {
            "experiment.yaml": dump_experiment(as_saved(self.experiment)),
            "environment.json": environment(self.device, extra),
        }


def softmax_of(config: ModelConfig, data: DataConfig, prepared: Prepared) -> SoftmaxConfig:
    """The softmax with its cutoffs in numbers, also where the experiment says auto.

    Raises:
        ValueError: the vocabulary is too small for so many clusters.
    """
    if isinstance(config.softmax, SoftmaxConfig):
        return config.softmax
    try:
        cutoffs = optimal_cutoffs(
            prepared.counts_V,
            d_model=config.d_model,
            widths=config.softmax.tail_widths(config.d_model),
            tokens=data.batch * data.segment,
            least_head_mass=config.softmax.head_mass,
        )
    except ValueError as error:
        raise ValueError(f"model.softmax.cutoffs: auto: {error}") from None
    return config.softmax.fixed(cutoffs)


def with_seed(bench: Workbench, seed: int) -> Workbench:
    """The same workbench with another seed."""
    run = bench.experiment.run.model_copy(update={"seed": seed})
    return replace(bench, experiment=bench.experiment.model_copy(update={"run": run}))


def as_saved(experiment: Experiment) -> Experiment:
    """The experiment as it is kept in files: without the password of a sweep's storage."""
    if experiment.sweep is None:
        return experiment
    storage = without_password(experiment.sweep.storage)
    sweep = experiment.sweep.model_copy(update={"storage": storage})
    return experiment.model_copy(update={"sweep": sweep})


def set_up(
    experiment: Experiment,
    run_dir: Path,
    settings: tuple[str, ...] = (),
    ranks: Ranks = ALONE,
) -> Workbench:
    """Choose device and threads and prepare the text.

    Raises:
        ValueError: the device is not there, or the text does not serve.
        OSError: a file cannot be read or written.
        Lost: another process of the run is gone.
    """
    if experiment.data.batch < ranks.world:
        raise ValueError(
            f"data.batch: {experiment.data.batch} streams cannot be shared out to {ranks.world} "
            "processes; start no more than there are streams, or raise data.batch"
        )
    device = find_device(experiment.run.device)
    if device.type == "cuda" and (launch := launched()) is not None:
        device = own_gpu(experiment.run.device, launch)
    if experiment.run.threads is not None:
        torch.set_num_threads(experiment.run.threads)
    elif ranks.world > 1:
        torch.set_num_threads(ranks.threads)
    if device.type == "cpu":
        keep_freed_memory()
    # One process of each machine builds what is not in the cache, the others find it there.
    if ranks.local_rank:
        ranks.wait()
    progress = say if ranks.is_first else _nothing
    progress(f"{experiment.data.corpus}: reading the text")
    prepared = prepare(experiment.data, Path.cwd(), progress=progress, is_run=run_folders(run_dir))
    if not ranks.local_rank:
        ranks.wait()
    return Workbench(experiment, run_dir, prepared, device, settings, ranks)


def _nothing(message: str) -> None:
    """What the first process says already."""


def say(line: str) -> None:
    """A line of progress, beside what the command answers."""
    print(line, file=sys.stderr, flush=True)


def tensorboard_writer(bench: Workbench, folder: Path) -> Callable[[int], Any] | None:
    """What opens TensorBoard's writer at a step, where it is asked for, else None.

    Raises:
        ValueError: the optional extra is not installed.
    """
    if not bench.experiment.run.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "run.tensorboard: the package tensorboard is missing; "
            "pip install 'tensorboard>=2.21', or leave --tensorboard out"
        ) from error
    return lambda step: SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
