"""How fast every kind of block is beside full attention, with long segments and a long memory.

Models whose slots are all of one kind take turns, each in a process of its own. evaluation: one
segment of one stream read behind a full memory, keys and values kept, with its loss; training: a
step of retrain.py; decode: one token of one stream behind a full memory. The cache is what one
stream keeps in one slot. identity is what a model costs without slots. Where a kind is no faster
than attention, its row gives the reason that its code suggests: that is read, not measured.

    python -m benchmarks.kinds_time --json benchmarks/results/kinds_time.json
    python -m benchmarks.kinds_time --kinds routing gated_delta --rounds 3
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.shapes import Shape
from pipeline import cli

if TYPE_CHECKING:
    from benchmarks.harness import Timings
    from model import LanguageModel

ATTENTION, FLOOR = "attention", "identity"
# Few ids, so that the softmax is a small part.
SHAPE = Shape(128, 4, 4, 512, batch=1, segment=512, memory=2048, vocabulary=1000, cutoffs=())
CALLS = {"evaluation": 2, "training": 1, "decode": 50}


@dataclass(frozen=True)
class Variant:
    """A kind with options, and why it is no faster than attention where it is not."""

    kind: str
    why: str
    options: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = {
    ATTENTION: Variant("attention", "it is the measure"),
    "local": Variant(
        "attention",
        "each query reads 512 keys in the place of up to 2560: only what is no product stays",
        {"window": 512},
    ),
    "multi_query": Variant(
        "attention",
        "scores take the time, and there are as many: it saves projections and the cache",
        {"n_kv_heads": 1},
    ),
    "adaptive_span": Variant(
        "adaptive_span",
        "before training it sees its whole span, and its masked softmax is no fused kernel",
        {"span": 2048},
    ),
    "span_tenth": Variant(
        "adaptive_span",
        "its masked softmax is no fused kernel, so short spans must make up for it",
        {"span": 2048, "first_span": 0.1},
    ),
    "all_attention": Variant(
        "all_attention",
        "each query reads 4 d_model more keys and values, but it replaces dense slots too",
    ),
    "routing": Variant(
        "routing",
        "each query gathers keys of its own: copies take the time, and half the heads are local",
        {"clusters": 16, "keys": 128},
    ),
    "gated_delta": Variant(
        "gated_delta",
        "a token alone is hundreds of small operations: their calls take the time, not the numbers",
    ),
    "linear_attention": Variant(
        "linear_attention", "chunks of 64 tokens follow one another: many small products"
    ),
    "short_conv": Variant(
        "short_conv", "it has few products: passes over the numbers of each channel take the time"
    ),
    "dense": Variant("dense", "it does as many products as attention with a short memory"),
    "persistent": Variant("persistent", "a softmax over 4 d_model vectors in each head"),
    "mixture_of_experts": Variant(
        "mixture_of_experts",
        "tokens are gathered for each expert, and products are as many as k dense blocks have",
    ),
    "product_key_memory": Variant(
        "product_key_memory",
        "values are read from all over the table, and an optimiser moves all of it",
    ),
    FLOOR: Variant("identity", "it is a model without slots"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = cli.Parser(description=__doc__, formatter_class=cli.HelpWithDefaults)
    parser.add_argument("--kinds", nargs="+", choices=VARIANTS, help="these alone (default: all)")
    parser.add_argument("--rounds", type=cli.number_from(1), default=7, metavar="N")
    for name in ("d_model", "segment", "memory", "slots"):
        option, default = f"--{name.replace('_', '-')}", getattr(SHAPE, name)
        parser.add_argument(option, type=cli.number_from(1), default=default, metavar="N")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    arguments = parser.parse_args(argv)
    from benchmarks.harness import Side, in_turn, write_result

    sizes = {name: getattr(arguments, name) for name in ("d_model", "segment", "memory", "slots")}
    shape = replace(SHAPE, **sizes, d_ffn=4 * arguments.d_model)
    names = list(dict.fromkeys((ATTENTION, *(arguments.kinds or VARIANTS), FLOOR)))
    timings = {}
    for workload, calls in CALLS.items():
        print(f"{workload}: {len(names)} sides", flush=True)
        sides = {name: Side(SIDES[workload], (shape, name)) for name in names}
        warm = 2 + shape.memory // shape.segment
        timings[workload] = in_turn(sides, rounds=arguments.rounds, calls=calls, warm=warm)
    rows = {name: row_of(name, shape, timings) for name in names}
    print("\n".join(table(rows)))
    write_result(arguments.json, "kinds_time", {"shape": asdict(shape), "kinds": rows})
    return 0


def model_of(shape: Shape, name: str) -> "LanguageModel":
    """A model whose slots are all of one variant, with as much memory as the shape says."""
    import torch

    from benchmarks.sides import language_model, model_config
    from model import BLOCKS

    variant = VARIANTS[name]
    options = {"kind": variant.kind, "label": variant.kind, **options_of(variant, shape.memory)}
    given = BLOCKS[variant.kind].options.model_validate(options)
    made = given.completed(shape.d_model, model_config(shape).model_dump())
    torch.manual_seed(0)
    return language_model(shape, [[made]] * shape.slots)


def options_of(variant: Variant, memory: int) -> dict[str, Any]:
    """The options of a variant; what reaches further than the memory ends there."""
    reaching = {"window", "span"}
    return {
        name: min(value, memory + 1) if name in reaching else value
        for name, value in variant.options.items()
    }


def evaluation(shape: Shape, name: str) -> Callable[[], object]:
    """Reads the next segment, keys and values kept; called often enough, memory is full."""
    import torch

    from benchmarks.sides import zipf_batches

    model, batches = model_of(shape, name).eval(), zipf_batches(shape)
    state, done = model.initial_state(shape.batch, cached=True), 0

    @torch.inference_mode()
    def read() -> None:
        nonlocal state, done
        batch = batches.batch(done)
        h_BTD, state, _ = model(batch.input_BT, state)
        model.nll(h_BTD, batch.target_BT)
        done += 1

    return read


def training(shape: Shape, name: str) -> Callable[[], object]:
    """A step of the retraining."""
    from benchmarks.sides import model_step

    return model_step(model_of(shape, name), shape)


def decode(shape: Shape, name: str) -> Callable[[], object]:
    """One token behind a full memory, and the probabilities of the next one."""
    import torch

    from benchmarks.sides import ADAM, zipf_batches
    from nas.costs.latency import Shapes, decode
    from training.step import Forward

    ids_BT = zipf_batches(shape).batch(0).input_BT
    forward = Forward(torch.device("cpu"), "float32")
    return decode(model_of(shape, name), Shapes(ids_BT, ids_BT, forward, ADAM))


SIDES: dict[str, Callable[[Shape, str], Callable[[], object]]] = {
    "evaluation": evaluation,
    "training": training,
    "decode": decode,
}


def cache_bytes(shape: Shape, name: str) -> int:
    """What one stream keeps in one slot while it is read."""
    import torch

    model = model_of(replace(shape, slots=1), name).eval()
    with torch.inference_mode():
        ids_BT = torch.zeros(1, 1, dtype=torch.int64)
        _, state, _ = model(ids_BT, model.initial_state(1, cached=True))
    (states,) = state.blocks
    return sum(one.numel() * one.element_size() for one in states if one is not None)


def flops(shape: Shape, name: str) -> float:
    """FLOPs of one slot for a token of a segment, as a training counts them."""
    (costs,) = (
        model_of(replace(shape, slots=1), name)
        .flops_per_token(shape.batch, shape.segment, (1.0,))
        .slots
    )
    return sum(costs.values())


def row_of(name: str, shape: Shape, timings: Mapping[str, "Timings"]) -> dict[str, Any]:
    """All that is known of a variant; the ratios say how many times attention's speed it has."""
    ratios = {workload: timings[workload].ratio(ATTENTION, name) for workload in CALLS}
    tokens = shape.batch * shape.segment
    speeds = {
        f"{workload}_tokens_per_s": 1e3 * tokens / timings[workload].row(name)["median_ms"]
        for workload in ("evaluation", "training")
    }
    return {
        "kind": VARIANTS[name].kind,
        "options": options_of(VARIANTS[name], shape.memory),
        **speeds,
        "decode_ms_per_token": timings["decode"].row(name)["median_ms"],
        "cache_bytes": cache_bytes(shape, name),
        "flops_per_token": flops(shape, name),
        "over_attention": ratios,
        "why": VARIANTS[name].why if is_slower(name, ratios) else "",
        "sides": {workload: timings[workload].row(name) for workload in CALLS},
    }


def is_slower(name: str, ratios: Mapping[str, float]) -> bool:
    """Whether it is no faster than attention in some way."""
    return name != ATTENTION and min(ratios.values()) <= 1.0


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each variant: speeds, their ratios to attention's in brackets, and why not."""
    head = (
        f"{'':19}{'evaluation tokens/s':>22}{'training tokens/s':>22}{'decode ms/token':>20}"
        f"{'cache':>12}{'MFLOP':>8}"
    )
    lines = [head]
    for name, row in rows.items():
        ratios = row["over_attention"]
        cells = [
            f"{row['evaluation_tokens_per_s']:12,.0f} ({ratios['evaluation']:6.2f}x)",
            f"{row['training_tokens_per_s']:12,.0f} ({ratios['training']:6.2f}x)",
            f"{row['decode_ms_per_token']:10.3f} ({ratios['decode']:6.2f}x)",
            f"{row['cache_bytes'] / 1024:9,.0f}KiB",
            f"{row['flops_per_token'] / 1e6:7.2f}",
        ]
        lines.append(f"{name:19}{' '.join(cells)}  {row['why']}".rstrip())
    return lines


if __name__ == "__main__":
    sys.exit(main())
