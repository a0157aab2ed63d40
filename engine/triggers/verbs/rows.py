"""The rows of trigger searches: a target each; of a universal search an input each, of an enumeration a branch each."""

from __future__ import annotations

import pyarrow as pa

from parley.engine.core.runs.answers import ANSWERED, NO_REPLIES
from parley.engine.core.runs.schemas import list_of, with_base

_DRAWN = [
    # Of how many drawn answers how many are successes, and how many are no replies.
    pa.field("samples", pa.int64()),
    pa.field("sampled", pa.int64()),
    pa.field("drawn_no_replies", NO_REPLIES),
    # Answers that a chat model which judges was asked for, verdicts of it that were neither yes nor no, and answers of it to
    # replies of which it gave no verdict, for they were no reply.
    pa.field("judge_answers", pa.int64()),
    pa.field("judge_unparsable", pa.int64()),
    pa.field("judge_no_reply", pa.int64()),
]
_HIT = pa.struct([pa.field("type", pa.string()), pa.field("hit", pa.bool_())])
_RESTART = pa.struct(
    [
        # Its number, the words of the input it ended with, joined by blanks, and the objective there.
        pa.field("restart", pa.int64()),
        pa.field("words", pa.string()),
        pa.field("loss", pa.float64()),
        # The objective at the start, then after every sweep; the last sweep may have been cut short.
        pa.field("loss_by_sweep", list_of(pa.float64())),
        pa.field("sweeps", pa.int64()),
        # Positions looked at, inputs taken over, inputs tried, and why it ended: "converged", "satisfied" or "limit".
        pa.field("visits", pa.int64()),
        pa.field("accepted", pa.int64()),
        pa.field("candidates", pa.int64()),
        pa.field("stopped", pa.string()),
        # Candidates among those tried that the rules for inputs refused, and the ids of the words.
        pa.field("refused", pa.int64()),
        pa.field("ids", list_of(pa.int64())),
        pa.field("hits", list_of(_HIT)),
    ]
)
TRIGGERS = with_base(
    [
        # The sentence that is searched for, and the input that is kept, words joined by blanks; which restart found it.
        pa.field("target", pa.string()),
        pa.field("trigger", pa.string()),
        pa.field("restart", pa.int64()),
        pa.field("loss", pa.float64()),
        # How likely the target is after it: its words, as the model has them, and its end, nats of each, whether each is the
        # likeliest; nats per word of the input, null without a language model.
        pa.field("target_words", list_of(pa.string())),
        pa.field("word_log_probability", list_of(pa.float64())),
        pa.field("likeliest", list_of(pa.bool_())),
        pa.field("input_log_probability", pa.float64()),
        # The request that the target comes with, the ids of the input, what is typed into each slot of the prompt, and whether
        # typing it gives these ids again; null where inputs have no text or targets no request.
        pa.field("prompt", pa.string()),
        pa.field("trigger_ids", list_of(pa.int64())),
        pa.field("typed", list_of(pa.string())),
        pa.field("retokenised", pa.bool_()),
        # Of Hugging Face models: what is replied greedily to the typed input, and whether that is a success.
        pa.field("reply", pa.string()),
        *ANSWERED,
        pa.field("verified", pa.bool_()),
        *_DRAWN,
        # Whether it is a hit, by type, and every restart that was needed.
        pa.field("hits", list_of(_HIT)),
        pa.field("restarts", list_of(_RESTART)),
    ]
)
"""One target of a trigger search per row, with all of its restarts."""
_PAIR = pa.struct(
    [
        # The model's label; a pair's key, request and target, and whether searches saw it.
        pa.field("model", pa.string()),
        pa.field("key", pa.string()),
        pa.field("prompt", pa.string()),
        pa.field("target", pa.string()),
        pa.field("searched", pa.bool_()),
        # Nats of a token of the target behind the input; whether it is a hit of the wanted type, null of the empty input.
        pa.field("nats", pa.float64()),
        pa.field("hit", pa.bool_()),
        # What is replied greedily to the typed input, whether that is a success.
        pa.field("retokenised", pa.bool_()),
        pa.field("reply", pa.string()),
        *ANSWERED,
        pa.field("verified", pa.bool_()),
        *_DRAWN,
    ]
)
UNIVERSAL = with_base(
    [
        # "found", "random" or "empty"; the input, what is typed into each slot, and its ids.
        pa.field("kind", pa.string()),
        pa.field("trigger", pa.string()),
        pa.field("typed", list_of(pa.string())),
        pa.field("trigger_ids", list_of(pa.int64())),
        # Of an input that was searched for, null of others: the objective, mean over the searched pairs, at the end and by
        # sweep, visits, inputs tried, how many of them were refused, and why it ended.
        pa.field("loss", pa.float64()),
        pa.field("loss_by_sweep", list_of(pa.float64())),
        pa.field("visits", pa.int64()),
        pa.field("candidates", pa.int64()),
        pa.field("refused", pa.int64()),
        pa.field("stopped", pa.string()),
        # What the model makes of it behind every prompt.
        pa.field("pairs", list_of(_PAIR)),
    ]
)
"""One input of a universal search per row, behind all prompts."""
TRANSFERRED = with_base(
    [
        # The run that an input was found in (or "no input"), its key there, and who was asked, by its label.
        pa.field("source", pa.string()),
        pa.field("trigger", pa.string()),
        pa.field("model", pa.string()),
        # Of an input the key ("trigger") of the same prompt without any; null for "no input".
        pa.field("control", pa.string()),
        # The request, the target, and what was typed into each slot.
        pa.field("prompt", pa.string()),
        pa.field("target", pa.string()),
        pa.field("typed", list_of(pa.string())),
        # What was replied greedily, whether it ended, whether it is a success.
        pa.field("reply", pa.string()),
        *ANSWERED,
        pa.field("ended", pa.bool_()),
        pa.field("verified", pa.bool_()),
        *_DRAWN,
    ]
)
"""One trigger typed to one model per row."""
TEXT_TRIGGERS = with_base(
    [
        # The request, the target, the input that is kept, and what is typed into each slot.
        pa.field("prompt", pa.string()),
        pa.field("target", pa.string()),
        pa.field("trigger", pa.string()),
        pa.field("typed", list_of(pa.string())),
        # How close the reply is to the target (1 more for a success), then of the best input of each generation; null where
        # there was no reply.
        pa.field("fitness", pa.float64()),
        pa.field("fitness_by_generation", list_of(pa.float64())),
        # Replies that were asked for; the one to the input, whether it ended, and whether it is a success.
        pa.field("queries", pa.int64()),
        pa.field("reply", pa.string()),
        *ANSWERED,
        pa.field("ended", pa.bool_()),
        pa.field("verified", pa.bool_()),
        # Whether the reply to no input is a success, and one to a random input; the best fitness and the number of these.
        pa.field("empty_verified", pa.bool_()),
        pa.field("random_verified", pa.bool_()),
        pa.field("random_fitness", pa.float64()),
        pa.field("random_queries", pa.int64()),
        # Answers of the model that are no replies, by what was asked: "found", "random", "empty" or "drawn".
        pa.field("no_replies", NO_REPLIES),
        # What an attacker that writes inputs was asked, 0 where words evolve; and its answers that are no replies.
        pa.field("attacker_answers", pa.int64()),
        pa.field("attacker_no_replies", NO_REPLIES),
        *_DRAWN,
    ]
)
"""One target of a search by replies alone per row."""
_FIND = pa.struct(
    [
        # A string of a list, the list's name, whether it is a whole reply to some input, and the first such input.
        pa.field("list", pa.string()),
        pa.field("string", pa.string()),
        pa.field("whole", pa.bool_()),
        pa.field("input", pa.string()),
    ]
)
_STRAY = pa.struct([pa.field("input", pa.string()), pa.field("reply", pa.string())])
BRANCHES = with_base(
    [
        # Inputs that begin alike, replies to them that are no word of the corpus, and a few of those.
        pa.field("inputs", pa.int64()),
        pa.field("outside", pa.int64()),
        pa.field("finds", list_of(_FIND)),
        pa.field("strays", list_of(_STRAY)),
    ]
)
"""One branch of the tree of all inputs per row: what a model replies to every one of them."""
