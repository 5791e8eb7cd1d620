"""What an experiment says about the model: its sizes, its softmax, and options of all slots."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from model.blocks import BLOCKS, Candidate
from model.blocks.options import CHUNK, Activation, Positions
from utils.validation import Section

if TYPE_CHECKING:
    from model.ops import Dropout


class ModelOptions(Section):
    """Options that all blocks of a model share, besides their sizes."""

    norm: Literal["layer", "rms", "scale"] = Field(
        default="layer",
        description="Norm of every block and before the softmax. layer: LayerNorm; rms: RMSNorm (a "
        "weight per channel, no mean); scale: ScaleNorm (one weight, initially sqrt(d_model)).",
    )
    norm_position: Literal["pre", "post"] = Field(
        default="pre",
        description="pre: x + block(norm(x)); post, as in the papers: norm(x + block(x)), and "
        "identity leaves x unchanged.",
    )
    last_norm: bool = Field(
        default=True,
        description="Norm before the softmax. false, as in the papers, needs norm_position post. "
        "Not for a search: the softmax would see how evenly a block mixes its candidates.",
    )
    token_shift: bool = Field(
        default=False,
        description="The upper half of a block's input channels comes from the token before, "
        "across segments too, which takes one more row of memory.",
    )
    d_embedding: int | None = Field(
        default=None,
        ge=1,
        le=2**16,
        description="Width of the embedding and of the softmax's rows; a matrix projects it to "
        "d_model, its transpose back where they are tied (default: d_model, no matrix). With "
        "cutoffs it is the head's width, which factor divides for the tails.",
    )
    rezero: bool = Field(
        default=False,
        description="ReZero: a block is x + a block(x) with a trained scalar a, initially 0, and "
        "no norm. Not for a search: while a is 0, all candidates are equal.",
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
                "last_norm: false leaves the sum of the blocks without a norm where norm_position "
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

Width = Annotated[int, Field(ge=1, le=2**16)]


class SoftmaxConfig(Section):
    """Adaptive softmax (Grave et al. 2017); without cutoffs a plain softmax."""

    factor: float | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="Tail t = 1, 2, ... has width d_model (or d_embedding) / factor^t (default "
        f"{DEFAULT_FACTOR}).",
    )
    sizes: tuple[Width, ...] | None = Field(
        default=None, description="Widths of the tails, in place of factor."
    )
    tied: bool = Field(default=True, description="The embedding and the softmax share weights.")
    # Last: the order of the fields is part of a saved model's digest.
    cutoffs: tuple[int, ...] = Field(
        default=(),
        max_length=64,
        description="Adaptive softmax: first token id of each tail, increasing; empty: ordinary "
        "softmax. The first should leave about 75% of the tokens before it; train.log says.",
    )

    @model_validator(mode="after")
    def _clusters_fit(self) -> Self:
        if any(b <= a for a, b in pairwise((0, *self.cutoffs))):
            raise ValueError(
                f"cutoffs: must be above 0 and strictly increasing, found {list(self.cutoffs)}"
            )
        if not self.cutoffs and self.factor is not None:
            raise ValueError("factor: has no effect without cutoffs; leave it out or give null")
        if self.sizes is not None and self.factor is not None:
            raise ValueError("sizes: give either factor or sizes, not both")
        if self.sizes is not None and len(self.sizes) != len(self.cutoffs):
            raise ValueError(
                f"sizes: {len(self.sizes)} widths for {len(self.cutoffs)} tails; give one each"
            )
        return self

    def tail_widths(self, head_width: int) -> tuple[int, ...]:
        """The width of each tail, at least 1."""
        if self.sizes is not None:
            return self.sizes
        factor = DEFAULT_FACTOR if self.factor is None else self.factor
        tails = range(1, len(self.cutoffs) + 1)
        return tuple(max(1, int(head_width // factor**tail)) for tail in tails)

    def check_vocabulary(self, vocabulary_size: int) -> None:
        """Raise ValueError where the cutoffs do not lie inside the vocabulary."""
        if self.cutoffs and self.cutoffs[-1] >= vocabulary_size:
            raise ValueError(
                f"softmax.cutoffs: {self.cutoffs[-1]} is not below the vocabulary "
                f"{vocabulary_size}; give smaller cutoffs or fewer"
            )


class ModelConfig(ModelOptions):
    """Sizes of the model, and the options that its candidates leave out."""

    n_blocks: int = Field(
        ge=1, le=4096, description="Number of blocks; two make one Transformer layer."
    )
    d_model: int = Field(ge=1, le=2**16, description="Width of the residual stream (hidden size).")
    n_heads: int = Field(default=4, ge=1, description="Attention heads.")
    d_head: int | None = Field(
        default=None, ge=1, description="Width of a head (default: d_model / n_heads)."
    )
    window: int | None = Field(
        default=None, ge=1, description="Keys that a query sees, its own included (default: all)."
    )
    memory: int = Field(
        default=64,
        ge=0,
        description="Earlier tokens that attention can read (mem_len); window - 1 with a window.",
    )
    clamp: int | None = Field(
        default=None,
        ge=0,
        description="Largest distance that is encoded (clamp_len); keys further away count as this "
        "far (default: no limit).",
    )
    positions: Positions = Field(
        default="relative",
        description="relative: Transformer-XL's; rope: queries and keys are turned by their "
        "positions; none: only that no query sees a later key. adaptive_span also has learned: a "
        "vector per distance, shared by all heads of a block.",
    )
    qk_norm: bool = Field(
        default=False,
        description="RMSNorm of every head's queries and keys, with a weight per channel.",
    )
    d_ffn: int = Field(ge=1, description="Inner width of a feed-forward (dense) block, GLU or not.")
    activation: Activation = Field(
        default="relu", description="relu2: relu squared; swiglu and geglu have no biases."
    )
    chunk: int = Field(default=1, ge=1, le=2**20, description=CHUNK)
    dropout: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="Dropout on each block's output and the softmax's input; the default of "
        "dropout_embedding and dropout_dense.",
    )
    dropout_embedding: float | None = Field(
        default=None, ge=0, lt=1, description="On the embeddings (default: dropout)."
    )
    dropout_attention: float = Field(
        default=0.0, ge=0, lt=1, description="On the attention weights."
    )
    dropout_dense: float | None = Field(
        default=None, ge=0, lt=1, description="In feed-forward blocks (default: dropout)."
    )
    candidates: tuple[Candidate, ...] = Field(
        default=("attention", "dense", "identity"),
        min_length=1,
        validate_default=True,
        description="Kinds that a block can become, each with options and a label if needed.",
    )
    tie_blocks: int | None = Field(
        default=None,
        ge=1,
        description="Blocks at this distance share weights, candidate by candidate (1: all blocks; "
        "default: none).",
    )
    softmax: SoftmaxConfig = SoftmaxConfig()

    @field_validator("candidates", mode="before")
    @classmethod
    def _a_name_is_a_kind(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return tuple({"kind": item} if isinstance(item, str) else item for item in value)

    @model_validator(mode="after")
    def _candidates_fit(self) -> "ModelConfig":
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
