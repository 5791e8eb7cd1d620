"""What an experiment says about the comparison: opponents, equal costs, seeds."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from utils.validation import Section


class CompareConfig(Section):
    """Which opponents the derived layout must beat."""

    opponents: list[str] = Field(
        default=["interleaved", "par", "sandwich", "random"],
        description="Rules (or other derivations), and opponents that cost what the chosen layout "
        "costs: random; permuted, its own blocks in another order; interleaved_short, with fewer "
        "slots; interleaved_narrow, with narrower dense blocks; sandwich_k, sandwiches of every k.",
    )
    equal: Literal["auto", "flops", "parameters", "cache", "latency", "decode", "train_step"] = (
        Field(
            default="auto",
            description="The cost that they share with it, within 3%; interleaved_short, "
            "interleaved_narrow and sandwich_k may have less (train_step: as much training by the "
            "clock); auto: latency or another time that it was derived within a budget of, else "
            "flops.",
        )
    )
    random_layouts: int = Field(
        default=1, ge=1, description="How many random opponents, each another network."
    )
    permutations: int = Field(
        default=1, ge=1, description="How many permuted opponents, each another network."
    )
    seeds: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(
        default=[0], min_length=1, description="Retraining seeds, all different."
    )

    @model_validator(mode="after")
    def _seeds_differ(self) -> "CompareConfig":
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"seeds: must differ, found {self.seeds}; the same run counts once")
        return self
