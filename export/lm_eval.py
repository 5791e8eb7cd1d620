"""A model as lm_eval's `LM`: its requests become rows, and rows become log-likelihoods or text."""

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from tqdm import tqdm

from data import Tokenizer, encode_documents
from export.scoring import Row, Score, pair_row, score
from model import LanguageModel, Sampling
from model.generation import GREEDY, read_prompts, steps

# New tokens where a task does not say how many, as of lm_eval's own models.
MOST_NEW = 256
_MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_SAMPLING = ("temperature", "top_k", "top_p")


class ParnasLM(LM):  # type: ignore[misc]
    """A model of Parnas with its tokenizer, for `lm_eval.simple_evaluate(model=...)`.

    Every request begins with `<doc>` and knows nothing of the others; it is read in full, by
    segments of so many tokens, with carried memory, `batch` requests side by side. Where a task
    wants draws, request k has seed + k.
    """

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        segment: int,
        *,
        batch: int = 16,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model, self.tokenizer, self.segment = model, tokenizer, segment
        self.batch, self.seed = batch, seed

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Log-probability of a continuation (nats), and whether greedy decoding gives it."""
        rows = [pair_row(self.tokenizer, *request.args) for request in requests]
        return [(-float(each.nats.sum()), each.greedy) for each in self._score(rows, greedy=True)]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Log-probabilities of whole texts (nats)."""
        documents = [encode_documents(self.tokenizer, [request.args[0]]) for request in requests]
        rows = [Row(document.tolist(), 1) for document in documents]
        return [-float(each.nats.sum()) for each in self._score(rows)]

    def _score(self, rows: Sequence[Row], *, greedy: bool = False) -> list[Score]:
        with tqdm(total=len(rows), unit="text", disable=None, leave=False) as bar:
            cut = {"segment": self.segment, "batch": self.batch}
            return score(self.model, rows, **cut, greedy=greedy, done=bar.update)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Text behind a context, up to one of the task's ends, its most tokens, or `<doc>`."""
        texts = [""] * len(requests)
        alike: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            alike.setdefault(json.dumps(request.args[1], sort_keys=True), []).append(place)
        for places in alike.values():
            options = requests[places[0]].args[1]
            for begin in range(0, len(places), self.batch):
                taken = places[begin : begin + self.batch]
                contexts = [requests[place].args[0] for place in taken]
                seeds = [self.seed + place for place in taken]
                for place, text in zip(taken, self._go_on(contexts, options, seeds), strict=True):
                    texts[place] = text
        return texts

    def _go_on(
        self, contexts: Sequence[str], options: Mapping[str, Any], seeds: Sequence[int]
    ) -> list[str]:
        """The texts that follow contexts; each is read alone, and the streams go on together."""
        sampling, ends, most = generation_options(options)
        made: list[list[int]] = [[] for _ in contexts]
        going = set(range(len(contexts)))
        reading = read_prompts(
            self.model, [encode_documents(self.tokenizer, [text]).tolist() for text in contexts]
        )
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        for _, id_B in islice(steps(self.model, reading, sampling, generators), most):
            for stream in sorted(going):
                made[stream].append(int(id_B[stream]))
                text = self.tokenizer.decode(made[stream])
                is_end = made[stream][-1] == self.tokenizer.doc_id
                if is_end or any(end in text for end in ends):
                    going.remove(stream)
            if not going:
                break
        return [cut_at(self.tokenizer.decode(ids), ends) for ids in made]


def cut_at(text: str, ends: Sequence[str]) -> str:
    """The text before the first of the ends in it."""
    return text[: min([place for end in ends if (place := text.find(end)) >= 0] or [len(text)])]


def generation_options(options: Mapping[str, Any]) -> tuple[Sampling, list[str], int]:
    """How text is drawn, where it ends, and its most tokens, from a task's generation_kwargs.

    ValueError: an option that is not known here, or out of bounds.
    """
    known = {"until", "do_sample", *_MOST, *_SAMPLING}
    if strange := sorted(set(options) - known):
        raise ValueError(
            f"generation_kwargs: {', '.join(strange)}: not known here, only "
            f"{', '.join(sorted(known))}; take it out of the task"
        )
    until = options.get("until") or []
    most = int(next((options[name] for name in _MOST if name in options), MOST_NEW))
    given = {name: options[name] for name in _SAMPLING if name in options}
    # A temperature alone asks for draws, and the others alone do not, as of lm_eval's own models.
    draws = options.get("do_sample", bool(given.get("temperature")))
    ends = [until] if isinstance(until, str) else list(until)
    return Sampling(**given) if draws else GREEDY, [end for end in ends if end], most
