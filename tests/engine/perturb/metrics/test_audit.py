"""What an audit comes to: hand-made rows with known figures, labels, agreement, tables."""

from __future__ import annotations

import math
from itertools import count
from typing import Any

import pytest

from parley.engine.core.stats.statistics import clustered_rate, rate
from parley.engine.perturb.metrics.audit import (
    CONTROL,
    KINDS,
    audit_metrics,
    audit_tables,
    describe_audit,
    kappa,
    label_metrics,
)
from parley.engine.perturb.strategies.stopwords import SIGNALS

SWAP, ANTONYM = "random-swap", "antonym"
NUMBERS = count()


def touched(strategy: str = ANTONYM, ratio: float = 1.0, **changes: Any) -> dict[str, Any]:
    """An utterance of three words whose perplexity grew by a ratio."""
    none = dict.fromkeys(SIGNALS, 0)
    settings = {"strategy": strategy, "place": 0, "before": "it is up", "after": "it is down", "num_changed": 1}
    settings |= {"nats_before": 8.0, "nats_after": 8.0 + 4 * math.log(ratio), "num_replaced": 1, "num_retagged": 0}
    return {**settings, "signals_before": none, "signals_after": none, "kept": None, **changes}


def row(*edits: dict[str, Any], words: int = 10, utterances: int = 2, **changes: Any) -> dict[str, Any]:
    made = {"status": "ok", "num_words": words, "num_utterances": utterances, "touched": list(edits), **changes}
    return {"context": f"context {next(NUMBERS)}", **made}


def test_shares_are_of_contexts_utterances_and_words() -> None:
    found = audit_metrics([row(touched(), touched(num_changed=3)), row(), row(touched()), row(words=20)], [ANTONYM, SWAP], 2.0)
    assert found[f"contexts_touched.{ANTONYM}"] == rate(2, 4)
    assert found[f"utterances_touched.{ANTONYM}"] == clustered_rate([2, 0, 1, 0], trials=[2, 2, 2, 2])
    assert found[f"words_changed.{ANTONYM}"].value == pytest.approx(5 / 3)
    assert found[f"share_of_words.{ANTONYM}"].value == pytest.approx(5 / 50)
    assert found[f"contexts_touched.{SWAP}"] == rate(0, 4)
    assert found[f"perplexity_ratio.{SWAP}"].n == found[f"words_changed.{SWAP}"].n == 0


def test_the_ratio_is_a_geometric_mean_over_words_and_end() -> None:
    longer = touched(ratio=1.0, after="it is down now", nats_after=10.0)
    found = audit_metrics([row(touched(ratio=2.0)), row(touched(ratio=8.0)), row(longer)], [ANTONYM], 2.0)
    assert found[f"perplexity_ratio.{ANTONYM}"].value == pytest.approx((2 * 8 * 1) ** (1 / 3))
    assert found[f"perplexity_ratio.{ANTONYM}"].low < 2.5 < found[f"perplexity_ratio.{ANTONYM}"].high
    assert found[f"perplexity_above.{ANTONYM}"] == rate(2, 3), "2 reaches a limit of 2"


def test_signs_count_where_there_are_more_than_before() -> None:
    def with_signs(before: int, after: int) -> dict[str, Any]:
        none = dict.fromkeys(SIGNALS, 0)
        return touched(signals_before={**none, "articles": before}, signals_after={**none, "articles": after})

    found = audit_metrics([row(with_signs(0, 1), with_signs(1, 1)), row(with_signs(2, 0), with_signs(1, 3))], [ANTONYM], 2.0)
    assert found[f"articles.{ANTONYM}"] == clustered_rate([1, 0, 0, 1], [0, 0, 1, 1])
    assert found[f"doubled_words.{ANTONYM}"] == clustered_rate([0] * 4, [0, 0, 1, 1])


def test_tags_are_of_replaced_words_and_entailment_only_where_it_was_asked() -> None:
    three = touched(num_replaced=3, num_retagged=2, kept=True)
    rows = [row(three, touched(num_replaced=0, kept=False)), row(touched(kept=True))]
    found = audit_metrics(rows, [ANTONYM], 2.0)
    assert found[f"retagged.{ANTONYM}"] == clustered_rate([2, 0], trials=[3, 1])
    assert found[f"kept.{ANTONYM}"] == clustered_rate([1, 0, 1], [0, 0, 1])
    assert "kept.antonym" not in audit_metrics([row(touched())], [ANTONYM], 2.0)


def test_utterances_of_a_context_are_drawn_together() -> None:
    # 40 contexts with ten touched utterances each, all of a context above the limit or none.
    rows = [row(*[touched(ratio=4.0 if number % 2 else 1.0)] * 10, utterances=10) for number in range(40)]
    found = audit_metrics(rows, [ANTONYM], 2.0)
    above, plain = found[f"perplexity_above.{ANTONYM}"], rate(200, 400)
    assert (above.value, above.n) == (0.5, 40)
    assert above.high - above.low > 3 * (plain.high - plain.low)
    assert found[f"utterances_touched.{ANTONYM}"].n == 40


def test_failed_contexts_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    found = audit_metrics([row(touched()), row(status="error", touched=None, num_words=None)], [ANTONYM], 2.0)
    assert found[f"contexts_touched.{ANTONYM}"] == rate(1, 1)
    assert "1 of 2 examples failed" in caplog.text


LINES = {"a": ANTONYM, "b": ANTONYM, "c": ANTONYM, "d": SWAP}


def test_a_line_is_wrong_when_one_labeller_says_so() -> None:
    found = label_metrics(LINES, {"alice": {"a": False, "b": True}, "bob": {"a": True, "c": False}})
    assert found[f"wrong.{ANTONYM}"] == rate(2, 3)
    assert found[f"wrong.{SWAP}"].n == 0
    assert found["agreement"] == rate(0, 1)
    assert label_metrics(LINES, {}) == label_metrics(LINES, {"alice": {}}) == {}
    assert "kappa" not in label_metrics(LINES, {"alice": {"a": False}, "bob": {"b": False}})


def test_labelled_lines_of_a_context_are_one_unit() -> None:
    lines = dict.fromkeys("abcdefgh", ANTONYM)
    labels = {name: {key: key < "e" for key in lines} for name in ("alice", "bob")}
    contexts = {key: "one" if key < "e" else "two" for key in lines}
    found = label_metrics(lines, labels, contexts)
    assert found[f"wrong.{ANTONYM}"] == clustered_rate([1, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1])
    assert (found[f"wrong.{ANTONYM}"].n, found["agreement"].n) == (2, 2)


def test_kappa_is_cohens() -> None:
    # Of 50 lines both say yes to 20 and no to 15: po = 0.7, pe = 0.5 (the example of many textbooks).
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([(True, True), (False, False)]) == 1.0
    assert math.isnan(kappa([(True, True)] * 3))
    one = {str(number): pair[0] for number, pair in enumerate(pairs)}
    other = {str(number): pair[1] for number, pair in enumerate(pairs)}
    found = label_metrics(dict.fromkeys(one, SWAP), {"alice": one, "bob": other, "carol": {"x": True}} | {"carol": {}})
    assert (found["kappa"].value, found["kappa"].n) == (pytest.approx(0.4), 50)


def test_every_metric_has_a_name_and_every_strategy_a_line() -> None:
    metrics = audit_metrics([row(touched(kept=True), touched(CONTROL, 9.0))], [ANTONYM, SWAP], 2.0)
    metrics |= label_metrics(LINES, {"alice": {"a": False, "d": True}, "bob": {"a": False}})
    assert {describe_audit(name).title for name in metrics} >= {"perplexity ratio, antonym", "agreement of labellers"}
    assert {name.partition(".")[0] for name in metrics} == {*KINDS, "agreement", "kappa"}
    reads, changes = audit_tables(metrics, 2.0, "trigrams").values()
    assert [each[0] for each in reads.rows] == [each[0] for each in changes.rows] == [ANTONYM, SWAP, CONTROL]
    assert reads.columns[1:4] == ("wrong by hand", "contexts labelled", "perplexity ratio")
    assert "ratio 2.00 or more" in reads.columns
    assert "kept by entailment" in reads.columns
    assert "Of lines with several labels (1) 100.0 % [20.7, 100.0] agree" in reads.note
    assert "few" in reads.note


def test_a_column_counts_what_its_label_and_note_say() -> None:
    """One context with two touched utterances, of both of which a line is labelled."""
    metrics = audit_metrics([row(touched(), touched())], [ANTONYM], 2.0)
    metrics |= label_metrics(dict.fromkeys("ab", ANTONYM), {"alice": {"a": True, "b": False}}, dict.fromkeys("ab", "c"))
    reads, changes = (dict(zip(table.columns, table.rows[0], strict=True)) for table in audit_tables(metrics, 2.0, "").values())
    assert (reads["contexts labelled"], reads["n"], changes["contexts"]) == ("1 few", "1 few", "1 few")
    note = audit_tables(metrics, 2.0, "")["How it reads"].note
    assert "n: different contexts that hold one" in note
    assert "Few: fewer than 30 contexts;" in note


def test_of_few_replaced_words_the_share_is_marked() -> None:
    rows = [row(touched(num_replaced=int(number == 0))) for number in range(40)]
    reads, _ = audit_tables(audit_metrics(rows, [ANTONYM], 2.0), 2.0, "trigrams").values()
    cells = dict(zip(reads.columns, reads.rows[0], strict=True))
    assert cells["other part of speech"] == "0.0 % few\n[0.0, 79.3]"
    assert cells["n"] == "40"
    assert "Few: fewer than 30" in reads.note


def test_columns_that_nobody_was_asked_for_are_left_out() -> None:
    reads, _ = audit_tables(audit_metrics([row(touched())], [ANTONYM], 3.0), 3.0, "trigrams").values()
    assert "ratio 3.00 or more" in reads.columns
    assert not {"wrong by hand", "contexts labelled", "kept by entailment"} & {*reads.columns}
