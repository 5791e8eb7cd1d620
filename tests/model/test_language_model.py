"""The whole model: tying, mixes, causality, costs."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from model import Dropout, LanguageModel, ModelOptions, SoftmaxConfig
from tests.model.tiny import D_MODEL, VOCABULARY, candidate, language_model, randomise, tokens

LAYERS = [[candidate(kind)] for kind in ("attention", "dense", "identity", "attention")]
SOFTMAXES: list[dict[str, Any]] = [
    {"cutoffs": cutoffs, "tied": tied} for cutoffs in ((), (5, 11)) for tied in (True, False)
]
every_softmax = pytest.mark.parametrize("softmax", SOFTMAXES, ids=str)


@every_softmax
def test_all_layouts_of_a_seed_begin_with_the_same_embedding_and_softmax(
    softmax: dict[str, Any],
) -> None:
    """Else their differences have more noise (benchmarks/records/score_noise.md)."""
    weights = []
    for slots in (LAYERS, [[candidate("dense")]] * 2):
        torch.manual_seed(0)
        model = LanguageModel(
            slots, d_model=8, vocabulary_size=VOCABULARY, softmax=SoftmaxConfig(**softmax)
        )
        weights.append({k: v for k, v in model.state_dict().items() if not k.startswith("slots.")})
    first, other = weights
    assert first.keys() == other.keys()
    assert len(first) > 2, "the norm and a table or more"
    for name, tensor in first.items():
        assert torch.equal(tensor, other[name]), name


def test_a_tied_table_learns_from_both_ends() -> None:
    tied, free = language_model(LAYERS), language_model(LAYERS, tied=False)
    weights = tied.state_dict()
    free.load_state_dict({**weights, "embedding.head": weights["softmax.head"]})
    ids_BT = tokens(2, 9)
    for model in (tied, free):
        h_BTD, _, _ = model(ids_BT, model.initial_state(2))
        model.nll(h_BTD, ids_BT.roll(1, dims=1)).sum().backward()
    assert free.embedding is not None
    tied_grad, *ends = (
        table.grad for table in (tied.softmax.head, free.embedding.head, free.softmax.head)
    )
    torch.testing.assert_close(tied_grad, sum(ends))


def test_several_candidates_need_a_mix() -> None:
    model = language_model([LAYERS[0], [*LAYERS[0], *LAYERS[1]]])
    with pytest.raises(AssertionError, match="a SuperNet needs a mix"):
        model(tokens(1, 3), model.initial_state(1))


def test_each_place_has_its_own_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[tuple[int, ...], float]] = []

    def recorded(like: torch.Tensor, rate: float) -> tuple[torch.Tensor, float]:
        seen.append((tuple(like.shape), rate))
        return torch.ones_like(like), 1.0

    rates = Dropout(residual=0.1, embedding=0.2, attention=0.3, dense=0.4)
    layers = [*LAYERS[:2], [candidate("dense", activation="swiglu")]]
    model, ids_BT = language_model(layers, dropout=rates), tokens(3, 7)
    for place in ("ops", "attention_kernels"):
        monkeypatch.setattr(f"model.{place}.keep", recorded)
    model.train()(ids_BT, model.initial_state(3))
    delta, heads, keys, d_ffn = (3, 7, D_MODEL), 2, 6 + 7, 12
    attention = [((3 * heads, 7, keys), 0.3), (delta, 0.1)]
    dense = [((3, 7, d_ffn), 0.4), (delta, 0.1)]
    assert seen == [(delta, 0.2), *attention, *dense, *dense, (delta, 0.1)]


@every_softmax
@pytest.mark.parametrize("d_embedding", [None, 4])
def test_declared_flops_are_those_that_torch_counts(
    softmax: dict[str, Any], d_embedding: int | None
) -> None:
    model = language_model(LAYERS, options=ModelOptions(d_embedding=d_embedding), **softmax)
    ids_BT = torch.tensor([[0, 3, 6, 12, 22], [1, 1, 9, 2, 4]])
    clusters = torch.bucketize(ids_BT, torch.tensor(softmax["cutoffs"]).long(), right=True)
    mass = clusters.flatten().bincount(minlength=len(softmax["cutoffs"]) + 1).double() / 10
    with FlopCounterMode(display=False) as counter:
        h_BTD, _, _ = model(ids_BT, model.initial_state(2))
        model.nll(h_BTD, ids_BT)
    costs = model.flops_per_token(2, 5, mass.tolist())
    assert costs.total * 10 == pytest.approx(counter.get_total_flops(), rel=1e-12)
    assert costs.slots[2] == {"identity": 0.0}
    memory = 6
    width, keys = D_MODEL, memory + 5
    assert costs.slots[0]["attention"] == pytest.approx(
        2 * D_MODEL * width * (4 + 2 * memory / 5 + keys / 10) + 6 * width * keys
    )


# --- slots that share their weights ---------------------------------------------------------------

LAYOUT = [[candidate(kind)] for kind in ("attention", "dense", "attention", "dense", "dense")]


def tied(period: int | None, slots: Any = LAYOUT) -> LanguageModel:
    model = LanguageModel(
        slots,
        d_model=D_MODEL,
        vocabulary_size=VOCABULARY,
        softmax=SoftmaxConfig(),
        tie_blocks=period,
    )
    randomise(model)
    return model


def loss(model: LanguageModel) -> torch.Tensor:
    """Two segments, so that memories matter."""
    ids_BT, state = tokens(2, 8), model.initial_state(2)
    _, state, _ = model(ids_BT[:, :4], state)
    h_BTD, _, _ = model(ids_BT[:, 4:], state)
    return model.nll(h_BTD, ids_BT[:, :4]).sum()


@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_tied_model_is_the_untied_one_with_copies_and_its_gradient_their_sum(period: int) -> None:
    shared, copies = tied(period), tied(None)
    weights = shared.state_dict()

    def source(name: str) -> str:
        """slots.3.x of the copies stands in slots.(3 mod period).x of the shared."""
        head, _, rest = name.partition(".")
        if head != "slots":
            return name
        slot, _, rest = rest.partition(".")
        return f"slots.{int(slot) % period}.{rest}"

    copies.load_state_dict({name: weights[source(name)] for name in copies.state_dict()})
    one, two = loss(shared), loss(copies)
    torch.testing.assert_close(one, two, rtol=0, atol=1e-11)
    one.backward()
    two.backward()
    summed: dict[str, torch.Tensor] = {}
    for name, parameter in copies.named_parameters():
        assert parameter.grad is not None
        summed[source(name)] = summed.get(source(name), torch.zeros(())) + parameter.grad
    found = dict(shared.named_parameters())
    assert found.keys() == summed.keys()
    for name, gradient in summed.items():
        torch.testing.assert_close(found[name].grad, gradient, rtol=0, atol=1e-10)


def test_one_label_must_mean_one_candidate() -> None:
    slots = [[candidate("dense")], [candidate("dense", d_ffn=7)]]
    with pytest.raises(ValueError, match=r"blocks\[1\]: dense has other options than in block 0"):
        tied(1, slots)
    tied(None, slots)
