"""Options of the whole model: its norms, what its slots read and add, its embedding."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer

from utils.validation import Section

Norm = Annotated[
    Literal["layer", "rms", "scale"],
    Field(
        description="Of every slot and before the softmax; layer: LayerNorm, rms: RMSNorm (a "
        "weight for each channel, no mean), scale: ScaleNorm (one weight, first sqrt(d_model))."
    ),
]
NormPosition = Annotated[
    Literal["pre", "post"],
    Field(
        description="pre: a block reads norm(x); post, as in the papers: a slot's result is "
        "norm(x + block(x)), identity leaves x as it is."
    ),
]
LastNorm = Annotated[
    bool,
    Field(
        description="A norm before the softmax; false, as in the papers, goes with norm_position: "
        "post. Of fixed layouts only: without it the softmax sees how evenly a slot mixes."
    ),
]
TokenShift = Annotated[
    bool,
    Field(
        description="Half of the channels that a block reads, the upper ones, are those of the "
        "token before; a memory of one row more carries it from segment to segment."
    ),
]
EmbeddingWidth = Annotated[
    int | None,
    Field(
        ge=1,
        le=2**16,
        description="Width of the embedding's and the softmax's rows, which a matrix takes to "
        "d_model and, where they are tied, its transpose back (default: d_model, no matrix). With "
        "cutoffs it is the width of the head, and what factor divides in the tails.",
    ),
]
ReZero = Annotated[
    bool,
    Field(
        description="A slot is x + a block(x) with a trained a that begins as 0, and there is no "
        "norm at all. Of fixed layouts only: while a is 0 no candidate makes a difference."
    ),
]


class ModelOptions(Section):
    """What all slots of a model have in common beside their sizes; the defaults are none."""

    norm: Norm = "layer"
    norm_position: NormPosition = "pre"
    last_norm: LastNorm = True
    token_shift: TokenShift = False
    d_embedding: EmbeddingWidth = None
    rezero: ReZero = False

    def problems(self, d_model: int) -> list[str]:
        """What has no effect, or no meaning in a model of this width."""
        problems = []
        if self.rezero:
            problems += [
                f"{name}: {getattr(self, name)} has no effect with rezero, which has no norm; "
                "leave it out"
                for name in ("norm", "norm_position", "last_norm")
                if getattr(self, name) != type(self).model_fields[name].default
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

# In a file: what is at its default stands in none, so that older files stay the same.
WrittenOptions = Annotated[ModelOptions, PlainSerializer(ModelOptions.changed)]
