"""Generated ids are those of a model that reads everything anew for each of them."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from model import BLOCKS, LanguageModel, ModelOptions
from model.generation import GREEDY, Sampling, draw, generate, probabilities, read
from tests.model.tiny import VOCABULARY, candidate, language_model, tokens

# Longer than the memory of 6 rows, than a pass of 4 tokens, and of one id alone.
PROMPTS = [tokens(1, length, seed=length)[0].tolist() for length in (9, 1, 17)]


@pytest.fixture(autouse=True)
def _short_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.generation.LEAST_AT_ONCE", 4)


@pytest.fixture(params=[*BLOCKS, "token_shift"])
def model(request: pytest.FixtureRequest) -> LanguageModel:
    """Two slots of a kind around one of attention, in float64."""
    shifted = request.param == "token_shift"
    kind = candidate("attention" if shifted else request.param)
    slots = [[kind], [candidate("attention", label="own", memory=5)], [kind]]
    options = ModelOptions(token_shift=shifted)
    return language_model(slots, options=options, cutoffs=(5, 11))


@torch.no_grad()
def token_by_token(
    model: LanguageModel, prompt: list[int], most: int, sampling: Sampling, seed: int
) -> list[int]:
    """The ids that follow, with no keys kept: each token makes those of the memory anew."""
    state, generator = model.initial_state(1), torch.Generator().manual_seed(seed)
    ids = list(prompt)
    for place in range(len(prompt) + most - 1):
        h_BTD, state, _ = model(torch.tensor([ids[place : place + 1]]), state)
        if place >= len(prompt) - 1:
            ids += draw(model.log_prob(h_BTD)[:, 0], sampling, [generator]).tolist()
    return ids[len(prompt) :]


def test_unequal_prompts_side_by_side_go_on_as_each_alone(model: LanguageModel) -> None:
    sampling, seeds = Sampling(temperature=0.8, top_k=9), [5, 6, 7]
    pairs = list(zip(PROMPTS, seeds, strict=True))
    wanted = [token_by_token(model, prompt, 5, sampling, seed) for prompt, seed in pairs]
    assert generate(model, PROMPTS, 5, sampling=sampling, seeds=seeds) == wanted
    prompt, seed = pairs[2]
    assert generate(model, [prompt], 5, sampling=sampling, seeds=[seed]) == wanted[2:]


def test_a_prompt_may_be_read_in_any_cuts(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = torch.tensor(PROMPTS[-1:])

    def log_prob_BV(*cuts: int) -> Tensor:
        state = model.initial_state(1, cached=True)
        for part in torch.split(prompt, list(cuts), dim=1):
            reading = read(model, part, state)
            state = reading.state
        return reading.log_prob_BV

    wanted = log_prob_BV(*[1] * 17)
    for cuts in ([17], [3, 12, 2]):
        torch.testing.assert_close(log_prob_BV(*cuts), wanted, rtol=0, atol=1e-10)
    monkeypatch.setattr("model.generation.LEAST_AT_ONCE", 64)  # a pass longer than the memory
    torch.testing.assert_close(log_prob_BV(17), wanted, rtol=0, atol=1e-10)


def small() -> LanguageModel:
    return language_model([[candidate("attention")], [candidate("dense")]])


def test_no_token_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lengths = small(), []
    forward = LanguageModel.forward

    def counted(self: LanguageModel, ids_BT: Tensor, *inputs: object, **options: object) -> object:
        lengths.append(ids_BT.shape[1])
        return forward(self, ids_BT, *inputs, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LanguageModel, "forward", counted)
    made = generate(model, [PROMPTS[-1]], 5)
    # What is drawn last need not be read.
    assert lengths == [4, 4, 4, 4, 1, 1, 1, 1, 1]
    assert len(made[0]) == 5


def test_a_stream_ends_before_the_id_that_ends_it_and_the_others_go_on() -> None:
    model = small()
    free = generate(model, PROMPTS, 12, sampling=Sampling(), seeds=[0, 1, 2])
    stop = next(ids[4] for ids in free if ids.index(ids[4]) == 4)
    made = generate(model, PROMPTS, 12, sampling=Sampling(), seeds=[0, 1, 2], stop_id=stop)
    assert made == [ids[: ids.index(stop)] if stop in ids else ids for ids in free]
    assert any(len(ids) < 12 for ids in made)


def test_prompts_that_cannot_be_read_are_refused() -> None:
    for prompts in ([], [[1], []]):
        with pytest.raises(ValueError, match="a prompt is empty"):
            generate(small(), prompts, 3)
    with pytest.raises(
        ValueError, match=f"ids from {VOCABULARY} to {VOCABULARY}, but the vocabulary"
    ):
        generate(small(), [[VOCABULARY]], 3)
    assert generate(small(), [[1]], 0) == [[]]


# A few values, so that many are equal; some ids are impossible.
LOGITS = st.lists(
    st.one_of(st.integers(-4, 4).map(float), st.floats(-30, 30), st.just(-math.inf)),
    min_size=1,
    max_size=12,
).filter(lambda logits: max(logits) > -math.inf)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.one_of(st.none(), st.integers(1, 14)),
    top_p=st.one_of(st.none(), st.floats(0.01, 1.0)),
)


def normed(weights: dict[int, float]) -> dict[int, float]:
    total = math.fsum(weights.values())
    return {index: weight / total for index, weight in weights.items()}


def by_hand(logits: list[float], sampling: Sampling) -> tuple[list[float], float]:
    """The probabilities, one id at a time; and how near an id was to being judged otherwise."""
    top = max(logits)
    weights = {i: math.exp((x - top) / sampling.temperature) for i, x in enumerate(logits)}
    order = sorted(weights, key=lambda i: (-logits[i], i))
    near = math.inf
    if sampling.top_k is not None:
        order = order[: sampling.top_k]
    kept = normed({i: weights[i] for i in order})
    if sampling.top_p is not None and sampling.top_p < 1:
        nucleus: list[int] = []
        for i in order:
            before = math.fsum(kept[j] for j in nucleus)
            near = min(near, abs(before - sampling.top_p))
            if before >= sampling.top_p:
                break
            nucleus.append(i)
        kept = normed({i: kept[i] for i in nucleus})
    return [kept.get(i, 0.0) for i in range(len(logits))], near


@settings(max_examples=50)
@given(logits=LOGITS, sampling=SAMPLINGS)
def test_probabilities_are_those_by_hand(logits: list[float], sampling: Sampling) -> None:
    wanted, near = by_hand(logits, sampling)
    if near > 1e-9:
        found = probabilities(torch.tensor([logits, logits[::-1]], dtype=torch.float64), sampling)
        torch.testing.assert_close(found[0].tolist(), wanted, rtol=0, atol=1e-12)


def test_draws_come_as_often_as_they_are_likely_and_never_what_is_left_out() -> None:
    log_p = torch.tensor([[0.5, 0.0, 0.3, 0.2, 0.0]]).log()
    generator = torch.Generator().manual_seed(0)
    drawn = [int(draw(log_p, Sampling(), [generator])) for _ in range(4000)]
    shares = [drawn.count(i) / len(drawn) for i in range(5)]
    assert shares == pytest.approx([0.5, 0, 0.3, 0.2, 0], abs=0.03)
    assert shares[1] == shares[4] == 0


@pytest.mark.parametrize("sampling", [GREEDY, Sampling()])
def test_a_model_that_gives_nan_is_refused(sampling: Sampling) -> None:
    with pytest.raises(ValueError, match="nan for the next token"):
        draw(torch.tensor([[0.0, math.nan]]), sampling, [torch.Generator().manual_seed(0)])


def test_options_out_of_bounds_are_refused_by_name() -> None:
    wrong: dict[str, list[Any]] = {"temperature": [-0.1, math.nan, math.inf], "top_k": [0]}
    wrong["top_p"] = [0.0, 1.1, math.nan]
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(ValueError, match=f"^{name}: must be .*found"):
            Sampling(**{name: value})


def test_at_its_bound_a_filter_keeps_no_more_than_it_must_and_the_lower_of_equal_ids() -> None:
    equal = torch.zeros(1, 4, dtype=torch.float64)
    assert probabilities(equal, Sampling(top_k=2))[0].tolist() == [0.5, 0.5, 0, 0]
    assert probabilities(equal, Sampling(top_p=0.5))[0].tolist() == [0.5, 0.5, 0, 0]
