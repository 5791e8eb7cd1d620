"""Alpha's loss is the distance of the sub-network, its gradient near that of the expected one."""

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.frozen_alpha import FrozenNet
from data.batching import Batch
from model import LanguageModel, ModelConfig, SoftmaxConfig
from model.state import StreamState
from nas.derivation.sub_networks import SubNetworks
from nas.search.estimators import gumbel_noise, soft
from utils.kept import Kept


def test_alpha_learns_by_the_distance_of_sub_networks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ModelConfig(n_blocks=3, d_model=8, n_heads=2, d_ffn=16, memory=4)
    a, d, i = config.completed_candidates()
    places, softmax = [[a, i], [d, i], [a, i]], SoftmaxConfig(cutoffs=[9])
    net = LanguageModel(places, d_model=8, vocabulary_size=23, softmax=softmax).double().eval()
    for parameter in net.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    batches = [Batch(ids[:, :-1], ids[:, 1:], False) for ids in torch.randint(23, (2, 2, 7))]
    options, kept = [(0, 2), (1, 2), (0, 2)], Kept(tmp_path / "kept", "")
    frozen = FrozenNet(SubNetworks(net, (a, d, i), options, batches, kept))
    alpha_LC = torch.tensor([[0.3, -0.2], [0.1, 0.4], [-0.5, 0.2]]).double().requires_grad_()
    expected = torch.zeros((), dtype=torch.float64)
    for choice, found in frozen.scores.distances([*product(*options)]).items():
        kept_L2 = torch.tensor([[k != 2, k == 2] for k in choice]).double()
        mix, state = soft(500 * kept_L2, torch.zeros(3, 2), 0.3), frozen.initial_state
        _, state = frozen.kl(mix, 0, state)
        assert frozen.kl(mix, 1, state)[0].item() == pytest.approx(found.kl_nats, abs=1e-10)
        expected = expected + found.kl_nats * (alpha_LC.softmax(-1) * kept_L2).sum(-1).prod()
    (exact_LC,), mean_LC = torch.autograd.grad(expected, alpha_LC), torch.zeros(3, 2)
    for draw in range(80):
        noise_LC = gumbel_noise(0, draw, 3, 2).double()
        _, state = frozen.kl(soft(alpha_LC, noise_LC, 0.3), 0, frozen.initial_state)

        def drawn(at_LC: Tensor, noise_LC: Tensor = noise_LC, state: StreamState = state) -> Tensor:
            return frozen.kl(soft(at_LC, noise_LC, 0.3), 1, state)[0]

        mean_LC = mean_LC + torch.autograd.grad(drawn(alpha_LC), alpha_LC)[0] / 80
        assert draw or torch.autograd.gradcheck(drawn, [alpha_LC], atol=1e-8)
    assert torch.cosine_similarity(mean_LC.flatten(), exact_LC.flatten(), dim=0) > 0.95
