"""What an experiment says about the model: its sizes, its softmax, and options of all slots."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from model.blocks import BLOCKS, Candidate
from model.blocks.options import CHUNK, Activation
from utils.validation import Section

if TYPE_CHECKING:
    from model.ops import Dropout


class ModelOptions(Section):
    """What all slots of a model have in common beside their sizes; the defaults are none."""

    norm: Literal["layer", "rms", "scale"] = Field(
        default="layer",
        description="Of every slot and before the softmax; layer: LayerNorm, rms: RMSNorm (a "
        "weight for each channel, no mean), scale: ScaleNorm (one weight, first sqrt(d_model)).",
    )
    norm_position: Literal["pre", "post"] = Field(
        default="pre",
        description="pre: a block reads norm(x); post, as in the papers: a slot's result is "
        "norm(x + block(x)), identity leaves x as it is.",
    )
    last_norm: bool = Field(
        default=True,
        description="A norm before the softmax; false, as in the papers, goes with norm_position: "
        "post. Of fixed layouts only: without it the softmax sees how evenly a slot mixes.",
    )
    token_shift: bool = Field(
        default=False,
        description="Half of the channels that a block reads, the upper ones, are those of the "
        "token before; a memory of one row more carries it from segment to segment.",
    )
    d_embedding: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="Width of the embedding's and the softmax's rows, which a matrix takes to "
        "d_model and, where they are tied, its transpose back (default: d_model, no matrix). With "
        "cutoffs it is the width of the head, and what factor divides in the tails.",
    )
    rezero: bool = Field(
        default=False,
        description="A slot is x + a block(x) with a trained a that begins as 0, and there is no "
        "norm at all. Of fixed layouts only: while a is 0 no candidate makes a difference.",
    )

    def problems(self, d_model: int) -> list[str]:
        """What has no effect, or no meaning in a model of this width."""
        problems = []
        if self.rezero:
            problems += [
                f"{name}: {getattr(self, name)} has no effect with rezero, which has no norm; "
                "leave it out"
                for name in ("norm", "norm_position", "last_norm")
                if getattr(self, name) != ModelOptions.model_fields[name].default
            ]
        elif not self.last_norm and self.norm_position == "pre":
            problems.append(
                "last_norm: false leaves what slots add up to without any norm where norm_position "
                "is pre; give norm_position: post, or leave it out"
            )
        if self.token_shift and d_model < 2:
            problems.append(f"token_shift: half of d_model {d_model} is no channel; widen d_model")
        if self.d_embedding is not None and self.d_embedding >= d_model:
            problems.append(
                f"d_embedding: {self.d_embedding} is not below d_model {d_model}, so it saves "
                "nothing; leave it out or make it smaller"
            )
        return problems

    def changed(self) -> dict[str, Any]:
        """The options that are not at their defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)


NO_OPTIONS = ModelOptions()

DEFAULT_FACTOR = 4
MOST_TAILS = 64

Width = Annotated[int, Field(ge=1, le=2**16)]


class _Tails(Section):
    """Widths of an adaptive softmax's tails, and whether the embedding shares its tables."""

    factor: float | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Tail t = 1, 2, ... has width d_model (or d_embedding) / factor^t (default "
        f"{DEFAULT_FACTOR}).",
    )
    sizes: tuple[Width, ...] | None = Field(
        default=None, description="Widths of the tails, instead of factor."
    )
    tied: bool = Field(default=True, description="Input embedding shares the softmax's tables.")

    @property
    def tails(self) -> int:
        """How many there are."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _widths_fit(self) -> Self:
        if self.sizes is not None and self.factor is not None:
            raise ValueError("sizes: give either factor or sizes, not both")
        if self.sizes is not None and len(self.sizes) != self.tails:
            raise ValueError(
                f"sizes: {len(self.sizes)} widths for {self.tails} tails; give one each"
            )
        return self

    def tail_widths(self, head_width: int) -> tuple[int, ...]:
        """The width of each tail, at least 1."""
        if self.sizes is not None:
            return self.sizes
        factor = DEFAULT_FACTOR if self.factor is None else self.factor
        return tuple(max(1, int(head_width // factor ** (t + 1))) for t in range(self.tails))


class SoftmaxConfig(_Tails):
    """Adaptive softmax (Grave et al. 2017); without cutoffs a plain softmax."""

    cutoffs: tuple[int, ...] = Field(
        default=(),
        max_length=MOST_TAILS,
        description="First id of each tail cluster, increasing; none: plain softmax; auto: those "
        "that cost least on the training text.",
    )

    @property
    def tails(self) -> int:
        """How many there are."""
        return len(self.cutoffs)

    @model_validator(mode="after")
    def _cutoffs_fit(self) -> Self:
        if any(b <= a for a, b in pairwise((0, *self.cutoffs))):
            raise ValueError(
                f"cutoffs: must be above 0 and strictly increasing, found {list(self.cutoffs)}"
            )
        if not self.cutoffs and self.factor is not None:
            raise ValueError("factor: has no effect without cutoffs; leave it out or give null")
        return self

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raise ValueError where the cutoffs do not lie inside the vocabulary."""
        if self.cutoffs and self.cutoffs[-1] >= vocabulary_size:
            raise ValueError(
                f"softmax.cutoffs: {self.cutoffs[-1]} is not below the vocabulary "
                f"{vocabulary_size}; give smaller cutoffs or fewer"
            )


class AutoSoftmaxConfig(_Tails):
    """Adaptive softmax whose cutoffs are those that cost least on the training text."""

    cutoffs: Literal["auto"]
    clusters: int = Field(
        default=4, ge=2, le=MOST_TAILS + 1, description="Head and tails (cutoffs: auto only)."
    )
    head_mass: float = Field(
        default=0.75,
        ge=0,
        le=1,
        description="Least part of the training tokens in the head (cutoffs: auto only). The cost "
        "does not see that narrow tails predict worse.",
    )

    @property
    def tails(self) -> int:
        """How many there will be."""
        return self.clusters - 1

    def fixed(self, cutoffs: tuple[int, ...]) -> SoftmaxConfig:
        """The same softmax with its cutoffs in numbers."""
        return SoftmaxConfig(cutoffs=cutoffs, factor=self.factor, sizes=self.sizes, tied=self.tied)


def _fixed_or_auto(value: Any) -> str:
    """Which softmax is meant: a word in the place of the cutoffs can only be auto."""
    cutoffs = value.get("cutoffs") if isinstance(value, dict) else getattr(value, "cutoffs", None)
    return "auto" if isinstance(cutoffs, str) else "fixed"


class ModelConfig(ModelOptions):
    """Sizes of the model; a candidate's options left out take the value given here."""

    n_blocks: int = Field(
        ge=1, le=4096, description="Number of blocks; two make one Transformer layer."
    )
    d_model: int = Field(ge=1, le=2**16, description="Width of the residual stream.")
    n_heads: int = Field(default=4, ge=1, description="Attention heads.")
    d_head: int | None = Field(
        default=None, ge=1, description="Width of a head (default d_model / n_heads)."
    )
    window: int | None = Field(
        default=None, ge=1, description="Keys a query sees, itself included (default: all)."
    )
    memory: int = Field(default=64, ge=0, description="Memory rows of an attention slot.")
    clamp: int | None = Field(
        default=None,
        ge=0,
        description="Keys further away than this are encoded as if they were this far "
        "(default: none).",
    )
    d_ffn: int = Field(ge=1, description="Inner width of a dense block.")
    activation: Activation = Field(default="relu", description="Of a dense block.")
    chunk: int = Field(default=1, ge=1, le=2**20, description=CHUNK)
    dropout: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="On what each slot adds and on the softmax's input; elsewhere where nothing "
        "else is given.",
    )
    dropout_embedding: float | None = Field(
        default=None, ge=0, lt=1, description="On the embeddings (default: dropout)."
    )
    dropout_attention: float = Field(
        default=0.0, ge=0, lt=1, description="On the attention weights."
    )
    dropout_dense: float | None = Field(
        default=None, ge=0, lt=1, description="On a dense block's inner layer (default: dropout)."
    )
    candidates: tuple[Candidate, ...] = Field(
        default=("attention", "dense", "identity"),
        validate_default=True,
        description="What a slot may become: a kind, or a kind with options and a label.",
    )
    tie_blocks: int | None = Field(
        default=None,
        ge=1,
        description="Slots so many apart share their weights, candidate by candidate (1: all slots "
        "do); default: none.",
    )
    softmax: Annotated[
        Annotated[SoftmaxConfig, Tag("fixed")] | Annotated[AutoSoftmaxConfig, Tag("auto")],
        Discriminator(_fixed_or_auto),
    ] = SoftmaxConfig()

    @field_validator("candidates", mode="before")
    @classmethod
    def _a_name_is_a_kind(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return tuple({"kind": item} if isinstance(item, str) else item for item in value)

    @model_validator(mode="after")
    def _candidates_fit(self) -> "ModelConfig":
        if not self.candidates:
            raise ValueError("candidates: there is none; a slot needs at least one")
        if self.tie_blocks is not None and self.tie_blocks >= self.n_blocks:
            raise ValueError(
                f"tie_blocks: {self.tie_blocks} of {self.n_blocks} blocks ties nothing; leave it "
                "out or give null"
            )
        labels = [candidate.label for candidate in self.candidates]
        if len(set(labels)) < len(labels):
            raise ValueError(f"candidates: labels must differ, found {labels}; add a label")
        for candidate in self.candidates:
            if candidate.label in BLOCKS and candidate.label != candidate.kind:
                raise ValueError(
                    f"candidates: the label {candidate.label} is the name of another kind than "
                    f"{candidate.kind}; give another label"
                )
        self.completed_candidates()
        if problems := self.problems(self.d_model):
            raise ValueError("\n".join(problems))
        return self

    @property
    def options(self) -> ModelOptions:
        """What all slots have in common."""
        return ModelOptions(**{name: getattr(self, name) for name in ModelOptions.model_fields})

    def dropouts(self) -> "Dropout":
        """What training drops at each place."""
        from model.ops import Dropout

        embedding, dense = self.dropout_embedding, self.dropout_dense
        return Dropout(
            residual=self.dropout,
            embedding=self.dropout if embedding is None else embedding,
            attention=self.dropout_attention,
            dense=self.dropout if dense is None else dense,
        )

    def completed_candidates(self) -> tuple[Candidate, ...]:
        """The candidates with every option filled in; ValueError where sizes do not fit."""
        completed, problems = [], []
        options = {name for kind in BLOCKS.values() for name in kind.options.model_fields}
        defaults = self.model_dump(include=options)
        for number, candidate in enumerate(self.candidates):
            try:
                completed.append(candidate.completed(self.d_model, defaults))
            except ValueError as error:
                for line in str(error).splitlines():
                    given = line.partition(":")[0] in candidate.model_fields_set
                    problems.append(f"candidates[{number}].{line}" if given else line)
        if problems:
            raise ValueError("\n".join(dict.fromkeys(problems)))
        return tuple(completed)
