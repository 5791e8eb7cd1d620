"""Adaptive softmax against torch's and against a plain one; the embedding that shares its tables.

B batch   T segment length   D d_model   V vocabulary
"""

from typing import Any

import pytest
import torch

from model import SoftmaxConfig
from model.softmax import AdaptiveSoftmax, ClusterTables
from tests.model.tiny import normal, randomise

V, D = 20, 8
CUTOFFS: list[tuple[int, ...]] = [(), (5,), (4, 9, 15), (1, 19)]
every_cut = pytest.mark.parametrize("cutoffs", CUTOFFS, ids=str)
every_width = pytest.mark.parametrize("d_embedding", [None, 4])


def softmax_of(
    cutoffs: tuple[int, ...], *, d_embedding: int | None = None, **options: Any
) -> AdaptiveSoftmax:
    softmax = AdaptiveSoftmax(V, D, SoftmaxConfig(cutoffs=cutoffs, **options), d_embedding)
    randomise(softmax)
    return softmax


def torch_twin(softmax: AdaptiveSoftmax, factor: float) -> torch.nn.AdaptiveLogSoftmaxWithLoss:
    """Torch's module with the same weights."""
    cutoffs = list(softmax.bounds[:-1])
    twin = torch.nn.AdaptiveLogSoftmaxWithLoss(D, V, cutoffs, div_value=factor).double()
    weights = [softmax.head]
    for table, projection in zip(softmax.tables, softmax.projections, strict=True):
        weights += [projection, table]
    for theirs, ours in zip(twin.parameters(), weights, strict=True):
        theirs.data.copy_(ours.data)
    return twin


EVERY_ID = torch.arange(2 * V).view(2, V) % V


@pytest.mark.parametrize("cutoffs", CUTOFFS[1:], ids=str)
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_values_and_gradients_are_those_of_torchs_adaptive_softmax(
    cutoffs: tuple[int, ...], factor: float
) -> None:
    softmax = softmax_of(cutoffs, factor=factor)
    twin = torch_twin(softmax, factor)
    h_BTD, target_BT = normal(2, V, D).requires_grad_(), EVERY_ID
    weight_BT = normal(2, V, seed=4)
    nll_BT = softmax.nll(h_BTD, target_BT)
    wanted_BT = -twin(h_BTD.flatten(0, 1), target_BT.flatten()).output.view(2, V)
    torch.testing.assert_close(nll_BT, wanted_BT, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        softmax.log_prob(h_BTD).flatten(0, 1), twin.log_prob(h_BTD.flatten(0, 1))
    )

    ours = [h_BTD, softmax.head]
    for table, projection in zip(softmax.tables, softmax.projections, strict=True):
        ours += [projection, table]
    found = torch.autograd.grad((nll_BT * weight_BT).sum(), ours)
    expected = torch.autograd.grad((wanted_BT * weight_BT).sum(), [h_BTD, *twin.parameters()])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_cut
@every_width
def test_probabilities_sum_to_one_and_agree_with_nll(
    cutoffs: tuple[int, ...], d_embedding: int | None
) -> None:
    softmax, h_BTD = softmax_of(cutoffs, d_embedding=d_embedding), normal(2, V, D)
    log_prob_BTV = softmax.log_prob(h_BTD)
    assert log_prob_BTV.shape == (2, V, V)
    torch.testing.assert_close(log_prob_BTV.exp().sum(-1), torch.ones(2, V).double())
    picked = log_prob_BTV.gather(-1, EVERY_ID[..., None])[..., 0]
    torch.testing.assert_close(softmax.nll(h_BTD, EVERY_ID), -picked, rtol=0, atol=1e-12)


@every_cut
@every_width
@pytest.mark.parametrize("kind", [ClusterTables, AdaptiveSoftmax])
def test_embedding_looks_up_the_row_of_each_id(
    cutoffs: tuple[int, ...], d_embedding: int | None, kind: type[ClusterTables]
) -> None:
    tables = kind(V, D, SoftmaxConfig(cutoffs=cutoffs), d_embedding)
    randomise(tables)
    rows = [tables.head[: tables.bounds[0]]]
    if tables.head_projection is not None:
        rows[0] = rows[0] @ tables.head_projection
    rows += [t @ p for t, p in zip(tables.tables, tables.projections, strict=True)]
    wanted = torch.cat(rows)[EVERY_ID] * D**0.5
    found = tables.embed(EVERY_ID)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    weight = normal(2, V, D, seed=6)
    parameters = list(tables.parameters())
    grads = torch.autograd.grad((found * weight).sum(), parameters)
    expected = torch.autograd.grad((wanted * weight).sum(), parameters)
    torch.testing.assert_close(grads, expected, rtol=0, atol=1e-12)


def test_options_that_do_not_fit_are_refused() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"cutoffs": (5, 5)}, r"cutoffs: must be above 0 and strictly increasing, found \[5, 5\]"),
        ({"cutoffs": (0, 5)}, "cutoffs: must be above 0"),
        ({"cutoffs": (5,), "sizes": (4, 2)}, "sizes: 2 widths for 1 tails"),
        ({"cutoffs": (5,), "sizes": (4,), "factor": 2}, "either factor or sizes"),
        ({"factor": 2}, "factor: has no effect without cutoffs"),
        ({"cutoffs": (5,), "sizes": (0,)}, "greater than or equal to 1"),
    ]
    for options, message in cases:
        with pytest.raises(ValueError, match=message):
            SoftmaxConfig(**options)


@every_cut
def test_an_id_of_another_vocabulary_is_refused(cutoffs: tuple[int, ...]) -> None:
    tables = ClusterTables(V, D, SoftmaxConfig(cutoffs=cutoffs))
    for wrong, message in (
        (V, f"ids from 0 to {V}, but the vocabulary has 0 to {V - 1}; encode the text"),
        (-100, f"ids from -100 to 0, but the vocabulary has 0 to {V - 1}; encode the text"),
    ):
        ids_BT = torch.tensor([[0, wrong]])
        with pytest.raises(ValueError, match=message):
            tables.embed(ids_BT)
        with pytest.raises(ValueError, match=message):
            softmax_of(cutoffs).nll(normal(1, 2, D), ids_BT)


@every_width
def test_embeddings_are_of_the_type_of_their_tables_under_autocast(d_embedding: int | None) -> None:
    """The residual stream has their type, and in bfloat16 every sum of it would be rounded."""
    softmax = softmax_of((5,), d_embedding=d_embedding).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert softmax.embed(EVERY_ID).dtype == torch.float32
