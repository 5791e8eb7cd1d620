"""What a phase says before its first step; train.log keeps it."""

import torch

from assembly.workbench import Workbench, cluster_mass
from model import AutoSoftmaxConfig, SoftmaxConfig
from training.config import OptimiserConfig


def text_summary(bench: Workbench) -> str:
    """Text, streams, seed and machine, with warnings."""
    data, prepared, run = bench.experiment.data, bench.prepared, bench.experiment.run
    counts = ", ".join(f"{name} {len(ids):,}" for name, ids in prepared.tokens.items())
    caps = {"validation": data.validation_tokens, "test": data.test_tokens}
    capped = [f"{name} capped at {most:,}" for name, most in caps.items() if most is not None]
    found = prepared.notes["lines_found_in_train"]["valid"]
    lines = [
        f"text: {data.corpus}; tokens: {'; '.join([counts, *capped])}; "
        f"vocabulary {prepared.tokenizer.vocabulary_size}",
        f"validation lines of {found['at_least_characters']}+ characters that stand in the "
        f"training text: {found['found']} of {found['lines']}",
        f"streams: {data.batch} x {data.segment} tokens a step; seed {run.seed}, "
        f"{bench.device}, {torch.get_num_threads()} threads, {run.precision}",
    ]
    return "\n".join(lines + _warnings(bench))


def _warnings(bench: Workbench) -> list[str]:
    """What is allowed but seldom meant."""
    lines = []
    for candidate in bench.experiment.model.completed_candidates():
        options = candidate.model_dump()
        window, memory = options.get("window"), options.get("memory")
        if window is not None and memory is not None and memory < window - 1:
            lines.append(
                f"warning: {candidate.label}: window {window} needs memory {window - 1}, found "
                f"{memory}: results depend on how the text is cut"
            )
    return lines


def softmax_line(bench: Workbench, softmax: SoftmaxConfig) -> str:
    """The cutoffs in numbers, and what the head holds of the training tokens."""
    if not softmax.cutoffs:
        return "softmax: plain"
    found = isinstance(bench.experiment.model.softmax, AutoSoftmaxConfig)
    computed = found and softmax == bench.softmax
    mass = cluster_mass(bench.prepared.counts_V, softmax.cutoffs)
    return (
        f"softmax: cutoffs {list(softmax.cutoffs)}{' (auto)' if computed else ''}, "
        f"{mass[0]:.1%} of the training tokens in the head"
    )


def optimiser_line(config: OptimiserConfig) -> str:
    """The weights' optimiser and its schedule."""
    return (
        f"weights: {config.kind}, learning rate {config.lr:g} after {config.warmup_steps} steps of "
        f"warm-up, then {config.schedule} to {config.final or 0:g} of it, "
        f"decay {config.weight_decay:g}, clip {config.clip_norm}"
    )


def parameter_count(model: torch.nn.Module) -> int:
    """How many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())
