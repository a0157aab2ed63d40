"""The reactive search: candidates a second of the batched search against one full pass of the target per candidate.

Both search from the same states, which self-play reached on random scenarios: two utterances have been said, and the
adversary's speaker has proposed a third. Two rules are measured: "pad_scan", the paper's, with the hard constraint, where
only candidates after which the target would end the talk are decided; and "exhaustive", the released code's, with the
soft penalty, where every candidate is. A candidate is one that the target's reader was asked about.

"identical": each step of ours replaces the same word at the same position as the reference does from the same sentence, or
one whose loss differs by less than 1e-4 from the reference's ("ties"); and both count the same candidates.
"ratio" is of the paper's rule. It grows as fewer candidates keep the constraint ("decided_share"), which depends on the
target; "ratio_deciding_less" is against a reference that leaves out the decisions of the others. "mflop" is what the search
multiplies for each candidate, "screening_mflop" of that in bfloat16, "reference_mflop" what one full pass does; "gemm_share"
is the share of our seconds that these products take at the rates of this machine, measured in the same run. In "split",
"ending" is the selection network over the tokens that differ from candidate to candidate, "kept" over those before them.
"bfloat16" says what a reading in it costs as a share of float32's, which share of choices it left to float32, and whether
choices are still told in it first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import BenchmarkOptions, Clock, Result, Spans, gflop_per_s, run
from benchmarks.plain_attack import PlainAttack, Target, Verdict
from benchmarks.weights import negotiator
from parley.engine.negotiation.attacks import replacement
from parley.engine.negotiation.attacks.replacement import ExchangeBatch, ReplacementResult, reactive
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.dealornodeal_rules import random_scenario
from parley.envs.negotiation.domain import EOS_ID
from parley.envs.negotiation.game import NegotiationGame, Rules
from parley.policies.negotiator import inference as prefix
from parley.policies.negotiator import model as cells
from parley.policies.negotiator.speaker import NegotiatorAgent

SEED = 1
MOST_DIFFERENCE = 1e-4
PAPER = SearchConfig()
RELEASED = SearchConfig(loss="released", constraint="soft", proposals="exhaustive")
PARTS = ("language", "constraint", "ending", "kept", "heads", "prefixes", "rest")


@dataclass(frozen=True, kw_only=True)
class Work:
    """How much of a rule is measured."""

    rounds: int
    """Times that ours and the reference take turns."""
    scenarios: int
    """Scenarios of each round; those whose talk ends before the third utterance fall out."""
    dialogues: int
    """Dialogues of them that are searched at most: those with the shortest sentences."""
    references: int
    """Dialogues of each round that the reference searches too."""


@dataclass(frozen=True, kw_only=True)
class Options(BenchmarkOptions):
    """The white-box reactive search against a plain loop."""

    checkpoint: Path | None = None
    """Checkpoint folder of the target, which also speaks for the adversary; one fitted on the spot when not given."""
    temperature: float = 0.5
    """Of the word distributions."""

    @property
    def paper(self) -> Work:
        """How much of the paper's rule."""
        rounds, references = (1, 2) if self.quick else (4, 4)
        return Work(rounds=rounds, scenarios=64, dialogues=64, references=references)

    @property
    def released(self) -> Work:
        """How much of the released code's rule, at thousands of candidates a word."""
        return Work(rounds=1 if self.quick else 4, scenarios=6, dialogues=6, references=1)

    @property
    def released_rule(self) -> SearchConfig:
        """The released code's rule; its reference takes a quarter of a minute for each word that it replaces."""
        return replace(RELEASED, max_replacements=1) if self.quick else RELEASED


@dataclass
class Comparison:
    """Steps of ours beside those of the reference."""

    same: int = 0
    """Steps with the same word at the same position, the decision to stop included."""
    ties: int = 0
    """Steps with another word, as good."""
    different: list[str] = field(default_factory=list)
    """What else was found."""


def states(agent: NegotiatorAgent, indices: range, most: int) -> tuple[ExchangeBatch, list[np.ndarray]]:
    """Dialogues of two utterances in which the adversary has a sentence to begin from; of all, those with the shortest.

    Raises:
        ConfigError: no talk gets so far.
    """
    scenarios = [random_scenario(stream(SEED, "scenario", i)) for i in indices]
    seeds = [derive_seed(SEED, "dialogue", i) for i in indices]
    game = NegotiationGame(scenarios, seeds, agent.vocabulary, Rules(complementary=True), [0] * len(indices))
    sessions = [agent.join(game.view(side)) for side in (0, 1)]
    for side in (0, 1):
        rows = game.rows_to_speak(side)
        game.say(rows, sessions[side].speak(rows))
    rows = game.rows_to_speak(0)
    spoken = sessions[0].speak(rows)
    sentences = [words[:length] for words, length in zip(spoken.tokens, spoken.lengths.tolist(), strict=True)]
    usable = [i for i, words in enumerate(sentences) if words[-1] == EOS_ID and len(words) > 1]
    if not usable:
        fix = "measure another checkpoint"
        raise ConfigError("the target never lets the adversary say a second sentence", got=f"{len(seeds)} dialogues", fix=fix)
    kept = sorted(sorted(usable, key=lambda i: len(sentences[i]))[:most])
    rows = rows[kept]
    exchanges = ExchangeBatch(game.contexts[:, rows], game.tokens[1, rows], game.num_tokens[rows])
    return exchanges, [sentences[i] for i in kept]


def begin(plain: PlainAttack, exchanges: ExchangeBatch, row: int) -> None:
    """Show the reference one of the dialogues."""
    contexts = (exchanges.contexts[0, row].tolist(), exchanges.contexts[1, row].tolist())
    plain.begin(contexts, exchanges.tokens[row, : exchanges.lengths[row]].tolist())


def compare(
    plain: PlainAttack, exchanges: ExchangeBatch, row: int, sentence: np.ndarray, outcome: ReplacementResult, result: Comparison
) -> None:
    """Search one dialogue plainly; after a tie, the reference goes on from our sentence."""
    begin(plain, exchanges, row)
    words, left, ties = sentence.tolist(), plain.config.max_replacements, result.ties
    replaced = plain.search(words, left)
    for step in [*outcome.steps[1:], None][:left]:
        theirs = replaced.pop(0) if replaced else None
        before, left = words, left - 1
        if step is not None:
            words = [*words[: step.position], step.word, *words[step.position + 1 :]]
        if (step and (step.position, step.word)) == (theirs and (theirs.position, theirs.word)):
            result.same += 1
        elif as_good(plain.judge(words), theirs.verdict if theirs else plain.judge(before)):
            result.ties += 1
            replaced = plain.search(words, left) if step else []
        else:
            result.different.append(f"after {before}: {step} against {theirs}")
            return
    if result.ties == ties and plain.num_candidates != outcome.reads:
        result.different.append(f"{outcome.reads} candidates against {plain.num_candidates}")


def as_good(ours: Verdict, theirs: Verdict) -> bool:
    """Whether rounding alone may have chosen between two sentences."""
    return ours.broken == theirs.broken and abs(ours.loss - theirs.loss) < MOST_DIFFERENCE


def measure_rule(agent: NegotiatorAgent, config: SearchConfig, work: Work) -> dict[str, Any]:
    """Both searches by turns, then the split of ours."""
    ours, reference, deciding, result = Clock(), Clock(), Clock(), Comparison()
    num_ours = num_decided = num_reference = num_needed = num_dialogues = num_tokens = 0
    for number in range(work.rounds):
        batch = range(number * work.scenarios, (number + 1) * work.scenarios)
        exchanges, sentences = states(agent, batch, work.dialogues)
        with ours.running():
            outcome = reactive(agent, exchanges, sentences, config)
        num_dialogues += len(outcome)
        num_tokens += sum(int(exchanges.lengths[row]) + len(words) for row, words in enumerate(sentences))
        num_ours += sum(item.reads for item in outcome)
        num_decided += sum(item.decisions for item in outcome)
        for row in range(min(work.references, len(outcome))):
            plain = PlainAttack(Target(agent.model, agent.temperature), config)
            decide = _clocked(plain.target.decide, deciding)
            with patch.object(plain.target, "decide", decide), reference.running():
                compare(plain, exchanges, row, sentences[row], outcome[row], result)
            num_reference += plain.num_candidates
            num_needed += outcome[row].decisions
    rate, reference_rate = num_ours / ours.cpu_s, num_reference / reference.cpu_s
    skipped_s = deciding.cpu_s * (1 - num_needed / num_reference)
    figures = {
        "ratio": rate / reference_rate,
        "ratio_deciding_less": rate * (reference.cpu_s - skipped_s) / num_reference,
        "different": result.different,
        "steps_same": result.same,
        "steps_tied": result.ties,
        "candidates_per_cpu_s": rate,
        "reference_candidates_per_cpu_s": reference_rate,
        "cpu_s_per_dialogue": ours.cpu_s / num_dialogues,
        "dialogues": num_dialogues,
        "candidates": num_ours,
        "reference_candidates": num_reference,
        "decided_share": num_decided / num_ours,
        "tokens_per_dialogue": num_tokens / num_dialogues,
    }
    return figures | _split(agent, config, work, rate)


def _split(agent: NegotiatorAgent, config: SearchConfig, work: Work, rate: float) -> dict[str, Any]:
    """Where the seconds of one round go, and what its products would need at the machine's rate."""
    exchanges, sentences = states(agent, range(work.scenarios), work.dialogues)
    spans = Spans()
    with _clocked_search(spans):
        spans.timed("rest", reactive)(agent, exchanges, sentences, config)
    whole = sum(spans.seconds.values())
    screening = [0]
    decide = prefix.Prefixes.decide

    def counted(prefixes: prefix.Prefixes, endings: prefix.Endings, dtype: torch.dtype = torch.float32) -> Tensor:
        with _counting() as inner:
            logits = decide(prefixes, endings, dtype)
        screening[0] += inner.get_total_flops() if dtype == torch.bfloat16 else 0
        return logits

    with _counting() as counter, patch.object(prefix.Prefixes, "decide", counted):
        outcome = reactive(agent, exchanges, sentences, config)
    candidates = sum(item.reads for item in outcome)
    mflop, screening_mflop = (flops / candidates / 1e6 for flops in (counter.get_total_flops(), screening[0]))
    needed_s = sum(
        amount / 1e3 / _product_rate(agent, dtype)
        for amount, dtype in ((mflop - screening_mflop, torch.float32), (screening_mflop, torch.bfloat16))
        if amount
    )
    plain = PlainAttack(Target(agent.model, agent.temperature), config)
    begin(plain, exchanges, 0)
    with _counting() as counter:
        plain.judge(sentences[0].tolist())
    return {
        "split": {name: spans.seconds[name] / whole for name in PARTS},
        "mflop": mflop,
        "screening_mflop": screening_mflop,
        "reference_mflop": counter.get_total_flops() / 1e6,
        "gemm_share": rate * needed_s,
    }


def _counting() -> FlopCounterMode:
    # What is added in place is not among the operations that torch counts by itself.
    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: _addmm_flop})


def _addmm_flop(sum_shape: Sequence[int], left: Sequence[int], right: Sequence[int], **_: Any) -> int:
    return 2 * left[0] * left[1] * right[1]


def _product_rate(agent: NegotiatorAgent, dtype: torch.dtype) -> float:
    """Return the rate of products at the shape of the selection network's recurrence."""
    width = agent.model.sizes.hidden_selection
    return gflop_per_s(cells.ROWS[dtype], width, 3 * width, dtype)


def _clocked(call: Callable[..., Any], clock: Clock) -> Callable[..., Any]:
    def clocked(*arguments: Any) -> Any:
        with clock.running():
            return call(*arguments)

    return clocked


@contextmanager
def _clocked_search(spans: Spans) -> Iterator[None]:
    """Clocks the calls that a search consists of."""
    calls: tuple[tuple[Any, str, str], ...] = (
        (prefix.Prefixes, "__init__", "prefixes"),
        (prefix.Prefixes, "_shares_in", "prefixes"),
        (prefix.Prefixes, "states", "language"),
        (prefix.Prefixes, "_over_ending", "language"),
        (cells.Selection, "read", "ending"),
        (prefix.Prefixes, "_over_prefix", "kept"),
        (prefix.Prefixes, "decide", "heads"),
        (replacement._Search, "_gaps", "constraint"),
    )
    with ExitStack() as stack:
        for owner, name, part in calls:
            stack.enter_context(patch.object(owner, name, spans.timed(part, getattr(owner, name))))
        yield


def measure(options: Options) -> Result:
    """Measures both rules."""
    agent = NegotiatorAgent(negotiator(options.checkpoint), "target", options.temperature)
    reactive(agent, *states(agent, range(8), most=2), PAPER)
    paper = measure_rule(agent, PAPER, options.paper)
    released = measure_rule(agent, options.released_rule, options.released)
    return Result(
        ratio=paper["ratio"],
        identical=not paper["different"] and not released["different"],
        share_of_floor=paper["gemm_share"],
        figures={
            "bfloat16": agent.tables.screening.facts,
            "ratio_exhaustive": released["ratio"],
            "weights": "fitted here" if options.checkpoint is None else "checkpoint",
            "pad_scan": paper,
            "exhaustive": released,
        },
    )


if __name__ == "__main__":
    run("whitebox", Options, measure)
