"""Words of a text, for word perplexity: exp(total nats / words)."""


def count_words(text: str, *, line_ends: bool = True) -> int:
    """Words between white space, and one end of line for each line as papers count WikiText.

    Without `line_ends` the words alone.
    """
    return len(text.split()) + (text.count("\n") if line_ends else 0)
