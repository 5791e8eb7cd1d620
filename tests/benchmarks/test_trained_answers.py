"""Which rule a derivation is judged against, and what the report says of the worst."""

from benchmarks.trained_answers import best_rule


def test_the_rule_is_the_best_expected_of_those_trained_in_full() -> None:
    names = ("layout", "length", "rule", "expected_nats")
    rows = [
        dict(zip(names, row, strict=True))
        for row in (
            ("a a d", "half", "attention blocks first: 2", "4.0"),
            ("a d a", "full", "attention blocks spread: 2", "4.3"),
            ("a d d", "full", "attention blocks first: 1", "4.2"),
            ("d a i", "full", "", "4.1"),
        )
    ]
    assert best_rule(rows) == "add"
