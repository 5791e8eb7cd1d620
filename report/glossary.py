"""The words that a page uses, each in a sentence or two."""

import re
from html import escape

from report import html

# A word, how it shows on a page, and what it means.
_WORDS = (
    ("alpha", r"\balpha\b", "The numbers that a search learns: one for each candidate of each "
     "slot."),
    ("discretisation gap", r"[Dd]iscretisation gap", "How much worse the net predicts when each "
     "slot keeps one candidate instead of the mixture."),
    ("entropy", r"\bentropy\b", "How undecided pi is: 1 as a share of the uniform one's has "
     "decided nothing, 0 has decided."),
    ("FLOPs", r"FLOPs|MFLOP", "Multiplications and additions of one forward pass, per token."),
    ("front", r"\bfront\b", "The layouts that no other one beats in both a cost and nats."),
    ("Holm", r"\bHolm\b", "Holm's correction: p values are raised where several differences are "
     "judged at once. An interval is of one difference alone."),
    ("interleaved", r"\binterleaved\b", "The rule attention, dense, attention, dense and so on: "
     "the usual Transformer."),
    ("interval, 95%", r"\b95%", "A range that a procedure puts around the true value in 95 of 100 "
     "repetitions. Over seeds it tells of retrainings, not of other searches."),
    ("latency", r"\blatency\b", "Time of one forward pass over a segment of real text, measured in "
     "turn with the other layouts on one machine."),
    ("latency x, ppl x", r"<small>x</small>", "As a multiple of the reference layout's: 0.80 takes "
     "four fifths."),
    ("margin", r"\bmargin\b", "By how much pi of a slot's likeliest candidate leads the second."),
    ("nats", r"\bnats\b", "The loss: the mean of -ln(probability of the token that came), lower is "
     "better. Perplexity is exp(nats)."),
    ("one-hot", r"\bone-hot\b", "The SuperNet with only the likeliest candidate of each slot."),
    ("par", r"\bpar\b(?!-?transformer)", "A rule: attention in one of p slots, all in the "
     "first two thirds, and dense elsewhere."),
    ("permuted", r"\bpermuted\b", "The chosen layout's own blocks in another order."),
    ("pi", r"\bpi\b", "softmax(alpha): how likely the search holds each candidate of a slot, "
     "recorded without noise."),
    ("placebo", r"\bplacebo\b", "A search in which there is nothing to choose: it shows what noise "
     "alone does to pi."),
    ("probe", r"\bprobes?\b", "A short real training that says which layouts are worth a full "
     "one."),
    ("sandwich", r"\bsandwich\b", "A rule: attention in the first k slots, dense in the last k, "
     "and interleaved between them."),
    ("seed", r"\bseeds?\b", "The number that all chance of a training follows from."),
    ("slot", r"\bslots?\b", "A place in the net for one block. A search chooses what stands "
     "there."),
    ("smallest visible difference", r"smallest visible", "A true difference of this size would be "
     "shown in four of five such comparisons."),
    ("SuperNet", r"\bSuperNets?\b", "The net of a search: every slot holds all candidates."),
    ("tau", r"\btau\b", "Temperature of the search: the lower it is, the nearer a drawn mixture "
     "is to a single candidate."),
)  # fmt: skip
_MARKUP = re.compile(r"<script.*?</script>|<pre.*?</pre>|<(?!small>|/small>)[^>]*>", re.DOTALL)


def glossary_section(used_in: str) -> html.Section | None:
    """The words that stand in this HTML; None where there are none of them."""
    text = _MARKUP.sub(" ", used_in)
    words = [(word, says) for word, pattern, says in _WORDS if re.search(pattern, text)]
    if not words:
        return None
    listed = "".join(f"<dt>{escape(word)}</dt><dd>{escape(says)}</dd>" for word, says in words)
    return html.Section("glossary", "Glossary", f'<dl class="words">{listed}</dl>')
