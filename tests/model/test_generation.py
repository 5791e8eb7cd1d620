"""Generated ids are those of a model that reads everything anew for each of them."""

import pytest
import torch
from torch import Tensor

from model import BLOCKS, LanguageModel, ModelOptions
from model.generation import GREEDY, Sampling, draw, generate, read
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


def test_the_likeliest_ids_are_those_of_a_model_that_keeps_no_keys() -> None:
    wanted = [token_by_token(small(), prompt, 9, GREEDY, 0) for prompt in PROMPTS]
    assert generate(small(), PROMPTS, 9) == wanted


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
        with pytest.raises(ValueError, match="a prompt holds no id"):
            generate(small(), prompts, 3)
    with pytest.raises(ValueError, match=f"id {VOCABULARY} is not below"):
        generate(small(), [[VOCABULARY]], 3)
    assert generate(small(), [[1]], 0) == [[]]
