"""What trainings of bots that look for a common friend report: names, directions and definitions of their figures."""

from __future__ import annotations

from parley.engine.core.stats.statistics import Metric
from parley.engine.core.stats.training import HIGHER, LOWER, PREDICTION

FRIENDS_TRAINING = {
    "test_nll": Metric("test loss per token", LOWER, "nats per word or copied node that sides say, </s> counted", main=True),
    "test_ppl": Metric("test perplexity", LOWER, "exp of the test loss per token", "perplexity", main=True),
    "test_entity_ppl": Metric(
        "test perplexity of entities", LOWER, "of those that sides copy from their graphs", "perplexity", main=True
    ),
    "test_item_ppl": Metric("test perplexity of selections", LOWER, "of the items that sides select", "perplexity"),
    "test_linked": Metric("mentions that are linked", HIGHER, "share of test mentions that a listener finds by words", "rate"),
    "selfplay_completion": Metric(
        "completion with itself", HIGHER, "share of test scenarios in which both select the common friend", "rate", main=True
    ),
    "selfplay_events": Metric("events with itself", LOWER, "utterances and selections of these chats"),
    "selfplay_selections": Metric("selections with itself", LOWER, "of both sides, in these chats"),
    "validation_nll": Metric("validation loss per token", LOWER, "as on the test split; the stopping criterion"),
    "validation_ppl": PREDICTION["validation_ppl"],
}
