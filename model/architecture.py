"""The architecture of a derived model: the JSON file that carries it between the phases."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from model.blocks import Candidate
from model.config import NO_OPTIONS, ModelOptions, SoftmaxConfig
from model.layout import Network, layout_letters, network_of, tied_slots
from utils.files import sha256_of
from utils.validation import Section, dotted, explain

Share = Annotated[float, Field(ge=0, le=1)]
# What a model folder must hold.
MODEL = ("architecture.json", "model.safetensors", "tokenizer.json")


class Measured(Section):
    """Nats per token of validation text, by the SuperNet's weights."""

    nats_per_token: float = Field(ge=0)
    standard_error: float = Field(
        ge=0,
        description="From the spread over parts of the text (sampled: and over the draws); it "
        "does not say how much another search would change the result.",
    )


class Gap(Section):
    """What it costs to make the choice discrete, without any training."""

    tokens: int = Field(ge=1, description="Scored tokens, the same for all three.")
    soft: Measured = Field(
        description="All candidates, weighed by pi, without noise; of several searches the mean "
        "over their SuperNets, each with its own pi."
    )
    sampled: Measured = Field(description="Mean over layouts drawn from pi.")
    one_hot: Measured = Field(description="The layout.")
    draws: int = Field(ge=2, description="How many layouts were drawn.")
    ratio: float = Field(ge=0, description="Perplexity of the layout over that of soft.")
    ratio_error: float = Field(ge=0, description="Its standard error, paired over the text.")


class Agreement(Section):
    """How far several searches chose alike."""

    searches: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = Field(
        min_length=2, max_length=4096, description="Their seeds."
    )
    blocks: tuple[Share, ...] = Field(description="Per block, the part of their pairs that agree.")
    kappa: float | None = Field(
        ge=-1, le=1, description="Fleiss' kappa; null: all chose one candidate everywhere."
    )
    interval: tuple[float, float] | None = Field(
        description="95%, of kappa over blocks; null: too few blocks, or too few that differ."
    )
    p_by_chance: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Probability of this much agreement if each search's choices were in random "
        "order.",
    )


class Evidence(Section):
    """Why these candidates were chosen."""

    method: str = Field(max_length=20_000, description="Name of the derivation.")
    pi: tuple[dict[str, Share], ...] = Field(
        default=(), description="Final probability of each label, per block; none: not searched."
    )
    margins: tuple[Share, ...] = Field(
        default=(), description="Per block, pi of the likeliest minus that of the second."
    )
    inherited: Measured | None = Field(
        default=None,
        description="The layout by the SuperNet's weights, where it was scored.",
    )
    gap: Gap | None = Field(default=None, description="What discretising costs.")
    budget: str | None = Field(
        default=None,
        max_length=1000,
        description="The limits that the layout kept, as given.",
    )
    agreement: Agreement | None = Field(default=None, description="Of several searches.")
    caveats: tuple[Annotated[str, Field(max_length=4096)], ...] = Field(
        default=(),
        max_length=4096,
        description="What the search lacked, and what does not follow from pi, in words.",
    )


def _every_option_given(candidate: Candidate) -> Candidate:
    absent = ["label"] * ("label" not in candidate.model_fields_set) + candidate.missing
    if absent:
        raise ValueError("\n".join(f"{name}: missing" for name in absent))
    return candidate


_Slot = Annotated[Candidate, AfterValidator(_every_option_given)]


class TokenizerIdentity(Section):
    """Which tokenizer the ids of the vocabulary come from."""

    digest: str = Field(max_length=200, description="Hash of its pieces and ranks.")


class FlopsKey(Section):
    """For which segments the FLOPs per token were counted."""

    batch: int = Field(ge=1, description="Streams.")
    segment: int = Field(ge=1, description="Tokens a stream reads at once.")
    mass: tuple[Share, ...] = Field(
        min_length=1, max_length=65, description="Part of the tokens in the head and each tail."
    )


class TimedCost(Section):
    """A time that was limited, measured whole beside the layout whose costs are 1x."""

    name: str = Field(max_length=40, description="What was timed: latency, decode, ...")
    ms: float = Field(gt=0)
    most_ms: float = Field(gt=0, description="The limit.")
    reference: str = Field(max_length=20_000, description="The layout of 1x.")
    reference_ms: float = Field(gt=0)
    key: dict[str, Annotated[str, Field(max_length=400)]] = Field(
        max_length=40, description="Device, threads, shapes and versions that it holds for."
    )


class ArchitectureCosts(Section):
    """What the model costs."""

    parameters: int = Field(ge=0, le=2**62)
    flops_per_token: float = Field(ge=0, description="Forward pass, 2 for a multiply-add.")
    key: FlopsKey
    times: tuple[TimedCost, ...] = Field(default=(), max_length=40)


class Architecture(Section):
    """A derived model: one candidate per slot and all that is needed to build it."""

    # The fields that say what is built; evidence, costs and provenance do not.
    built_of: ClassVar[set[str]] = {
        *("version", "d_model", "blocks", "tie_blocks", "options", "softmax", "vocabulary_size")
    }

    version: Literal[1] = 1
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    d_model: int = Field(ge=1, le=2**16, description="Width of the residual stream.")
    blocks: tuple[_Slot, ...] = Field(
        max_length=4096, description="The choice of each block, with all its options."
    )
    tie_blocks: int | None = Field(
        default=None, ge=1, description="Blocks at this distance share weights; null: none do."
    )
    options: ModelOptions = Field(default=NO_OPTIONS, description="Norms and the like.")
    softmax: SoftmaxConfig
    vocabulary_size: int = Field(ge=1, le=2**24)
    tokenizer: TokenizerIdentity
    costs: ArchitectureCosts | None = None
    evidence: Evidence | None = None
    provenance: dict[str, str] = Field(
        default_factory=dict, description="Where it comes from: run, seed, commit, ..."
    )

    @model_validator(mode="after")
    def _parts_fit(self) -> "Architecture":
        if not self.blocks:
            raise ValueError("blocks: there is none")
        self.softmax.check_vocabulary(self.vocabulary_size)
        tied_slots([[slot] for slot in self.blocks], self.tie_blocks)
        if problems := self.options.problems(self.d_model):
            raise ValueError("\n".join(f"options.{line}" for line in problems))
        return self

    @property
    def network(self) -> Network:
        """The layout's canonical form; it is computed and stands in no file."""
        return network_of(self.blocks, self.tie_blocks)

    def to_json(self) -> str:
        """The file's text; the same architecture always gives the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str) -> "Architecture":
        """The inverse of `to_json`; ValueError has a line for each problem of the text."""
        try:
            return cls.model_validate_json(text, strict=True)
        except ValidationError as error:
            errors = error.errors()
        data = {} if errors[0]["type"] == "json_invalid" else json.loads(text)
        explained = explain(errors, cls, data)
        problems = [f"{dotted(key)}: {words}" if key else words for key, words in explained]
        raise ValueError("\n".join(f"{source}: {problem}" for problem in problems))

    def letters(self) -> str:
        """The layout, e.g. "a d a i": letters for the default labels, others as they are."""
        return layout_letters(self.blocks)


def load_architecture(path: Path | str) -> Architecture:
    """Read an architecture file; ValueError has a line for each problem of the file."""
    path = Path(path)
    return Architecture.from_json(path.read_bytes(), str(path))


def check_model_folder(folder: Path) -> None:
    """Raise ValueError where a folder lacks what a model folder has; torch is not loaded."""
    if missing := [name for name in MODEL if not (folder / name).is_file()]:
        raise ValueError(
            f"{folder}: not a model folder ({', '.join(missing)} not found); "
            "give RUN/model or RUN/retrain/NAME/seed-N/model"
        )


def model_digest(folder: Path) -> str:
    """SHA-256 of a model's weights file, which also says what architecture and tokenizer it has."""
    file = folder / "model.safetensors"
    now = file.stat()
    return _digest_of(file, now.st_mtime_ns, now.st_size)


@lru_cache
def _digest_of(file: Path, *_version: int) -> str:
    return sha256_of(file)
