"""The rows of negotiations: a dialogue each, and what an attack tried in it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa

from parley.engine.core.runs.schemas import list_of, ok_row, with_base
from parley.envs.negotiation.game import NOBODY, NegotiationGame
from parley.envs.negotiation.scenario import ILLEGAL
from parley.policies.chat.negotiator import ChatMoves

_CHAT = pa.struct([pa.field(each.name, pa.int64()) for each in fields(ChatMoves)])
DIALOGUES = with_base(
    [
        # The scenario: the number of each item, its points for each side; `domain_recorded` knows the game.
        pa.field("counts", list_of(pa.int64())),
        pa.field("values_adversary", list_of(pa.int64())),
        pa.field("values_target", list_of(pa.int64())),
        # The dialogue: sides 0 (adversary) and 1 (target), words joined by blanks, `<eos>` left out.
        pa.field("first_speaker", pa.int64()),
        pa.field("turns", list_of(pa.struct([pa.field("side", pa.int8()), pa.field("words", pa.string())]))),
        # The outcome: ended_by is the side that said `<selection>`, -1 when a limit did. A selection is tokens of the game, or
        # `<illegal>` alone where it was out of range, which counts as no agreement.
        pa.field("agreed", pa.bool_()),
        pa.field("forced", pa.bool_()),
        pa.field("ended_by", pa.int64()),
        pa.field("points_adversary", pa.int64()),
        pa.field("points_target", pa.int64()),
        pa.field("selection_adversary", list_of(pa.string())),
        pa.field("selection_target", list_of(pa.string())),
        pa.field("pareto", pa.bool_()),
        # Language: turns include `<selection>`; words are the tokens a side wrote itself, `<eos>` and `<selection>`
        # included, forced ones not; nll is their summed negative log likelihood in nats, null when it was not scored.
        pa.field("num_turns", pa.int64()),
        pa.field("num_words_adversary", pa.int64()),
        pa.field("num_words_target", pa.int64()),
        pa.field("nll_adversary", pa.float64()),
        pa.field("nll_target", pa.float64()),
        # What a chat model's part took, and where it broke the form (`ChatMoves`); null for agents of another kind. A
        # dialogue that was lost has it too, as far as it came.
        pa.field("chat_adversary", _CHAT),
        pa.field("chat_target", _CHAT),
        # A defended target: the turns of the adversary that its filter stopped, its own in which it refused to end.
        pa.field("stopped", list_of(pa.int64())),
        pa.field("refused", list_of(pa.int64())),
    ]
)
"""One negotiation dialogue per row."""
OF_DEFENCES = ("stopped", "refused", "kept_out")
"""Columns of dialogues with a defended target and of searches that mind a filter; null in others."""
_STEP = pa.struct(
    [
        pa.field("replaced", pa.int64()),
        pa.field("reads", pa.int64()),
        pa.field("decisions", pa.int64()),
        pa.field("feasible", pa.bool_()),
        pa.field("points_adversary", pa.int64()),
        pa.field("points_target", pa.int64()),
    ]
)
_ATTEMPT = pa.struct(
    [
        # Which utterance of `turns` it is, how it was made ("reactive", "preemptive" or "transfer"), and whether its search
        # reached its goal.
        pa.field("turn", pa.int64()),
        pa.field("kind", pa.string()),
        pa.field("accepted", pa.bool_()),
        # What the speaker would have said, words joined by blanks, `<eos>` left out, and the positions of the words in
        # the said sentence that differ from it.
        pa.field("base", pa.string()),
        pa.field("replaced", list_of(pa.int64())),
        # Reactive attempts: the target's probability of answering `<selection>` at its temperature, and whether it did.
        pa.field("end_probability", pa.float64()),
        pa.field("ended", pa.bool_()),
        # Language: tokens of the sentence, `<eos>` included; nats of it and of the base sentence in its place under the
        # judge; its least likely token; its special tokens. Likelihoods are null when they were not scored.
        pa.field("num_words", pa.int64()),
        pa.field("nll", pa.float64()),
        pa.field("nll_base", pa.float64()),
        pa.field("num_words_base", pa.int64()),
        pa.field("lowest_probability", pa.float64()),
        pa.field("special", pa.int64()),
        # The path of the search, the untouched sentence first: words replaced so far, queries so far, whether the end
        # constraint holds, and what both sides would earn if the dialogue ended there.
        pa.field("steps", list_of(_STEP)),
    ]
)
EXPLOITED = with_base(
    [
        # Which fresh adversary, from how many dialogues it had learned, and its advantage then, as an estimate over dialogues.
        pa.field("adversary", pa.int64()),
        pa.field("dialogues", pa.int64()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("n", pa.int64()),
    ]
)
"""One fresh adversary after one budget per row."""
ATTACKS = pa.schema(
    [
        *DIALOGUES,
        # The outcome if the target had to end the dialogue at the first reactive sentence that satisfies the end constraint;
        # where there is none, the outcome of the dialogue as it was played.
        pa.field("forced_points_adversary", pa.int64()),
        pa.field("forced_points_target", pa.int64()),
        pa.field("forced_agreed", pa.bool_()),
        # Candidates that the target was asked about, rejected searches included: read, and decided upon.
        pa.field("reads", pa.int64()),
        pa.field("decisions", pa.int64()),
        pa.field("attempts", list_of(_ATTEMPT)),
        # Candidates that nobody was asked about because they were too perplexing; null where the search minds no limit.
        pa.field("kept_out", pa.int64()),
    ]
)
"""One attacked negotiation dialogue per row, played live, with the searches for the sentences that were said in it."""


def dialogue_row(game: NegotiationGame, row: int, key: str) -> dict[str, Any]:
    """A finished dialogue as a row of `DIALOGUES`; likelihoods, and what a defence did, are left null."""
    scenario = game.scenarios[row]
    written = game.authors[row]
    table, tokens = scenario.selections.table, scenario.domain.tokens
    adversary, target = (
        [ILLEGAL] if illegal else [tokens[token] for token in table[selection]]
        for selection, illegal in zip(game.selections[row], game.illegal_selections[row], strict=True)
    )
    return ok_row(key, game.seeds[row]) | {
        "counts": list(scenario.counts),
        "values_adversary": list(scenario.values[0]),
        "values_target": list(scenario.values[1]),
        "first_speaker": int(game.first_speakers[row]),
        "turns": [{"side": side, "words": " ".join(words)} for side, words in game.transcript(row)],
        "agreed": bool(game.agreed[row]),
        "forced": bool(game.forced[row]),
        "ended_by": NOBODY if game.forced[row] else int(game.to_move[row]),
        "points_adversary": int(game.points[row, 0]),
        "points_target": int(game.points[row, 1]),
        "selection_adversary": adversary,
        "selection_target": target,
        "pareto": game.is_pareto(row),
        "num_turns": int(game.num_turns[row]),
        "num_words_adversary": int(np.count_nonzero(written == 0)),
        "num_words_target": int(np.count_nonzero(written == 1)),
        **dict.fromkeys(("nll_adversary", "nll_target", "chat_adversary", "chat_target", "stopped", "refused")),
    }
