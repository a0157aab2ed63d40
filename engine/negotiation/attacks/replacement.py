"""Adversarial sentences by word replacement: the reactive and the preemptive search (Cheng et al. 2019, section 5.1).

Both begin with a sentence of the adversary's speaker and replace one word after another, each time by the candidate with the
lowest key, as long as the key falls. They differ in what follows the sentence:
  * reactive (eq. 5-7): the target ends the talk at once, and chooses;
  * preemptive (eq. 8): the target replies, the adversary ends the talk, and the target chooses; the loss is the mean over
    sampled replies. All candidates of a search meet the same draws; other draws judge whether the result reaches its goal.
If fluency is a constraint, candidates that are too perplexing are not queried; the padding that finds positions is exempt.
A key is (constraint broken, loss, -advantage), compared in this order; where the constraint is broken, the gap replaces the
loss. Candidates of many dialogues are judged together.

Departures:
  * # Paper: candidates that break the constraint are dropped. Ours: they rank last, by how far the target is from ending, so
    that a search whose first sentence does not end the talk has a way to one that does. A black box shows no such distance.
    So too where a place is chosen by padding it out, for which the paper looks at the loss alone.
  * # Released: the first word stays, and special tokens may enter. Ours: every word may go; special tokens are an option.
  * # Released: a preemptive candidate is judged on 1 or 10 fresh replies. Ours: on a few common ones, the best on many.

Shapes: n dialogues, r candidates, L words of a sentence (its `<eos>` included), V words, M selections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from parley.engine.negotiation.attacks.candidates import (
    Candidates,
    ExchangeBatch,
    ReplacementResult,
    ReplacementStep,
    Scores,
    offered_words,
)
from parley.engine.negotiation.attacks.choices import (
    BLOCK,
    Choices,
    Chooser,
    Queries,
    Values,
    codes_of,
    end_gaps,
    losses,
    word_changes,
)
from parley.engine.negotiation.attacks.settings import SearchConfig
from parley.engine.negotiation.defences import PerplexityFilter, admissible
from parley.envs.negotiation.domain import EOS_ID, PAD_ID, SELECTION_ID
from parley.policies.negotiator.inference import Endings, Prefixes
from parley.policies.negotiator.speaker import NegotiatorAgent, selection_scores

REPLY_WORDS = 40
"""Words of a sampled reply, its end included; longer ones are cut off."""

Judge = Callable[[Candidates, np.ndarray | None], Scores]
"""Function that scores candidates. Scores are exact for the best of each dialogue if its code is below the given code (n,);
without codes, only the order of the best is certain."""


@torch.no_grad()
def reactive(
    target: NegotiatorAgent,
    exchanges: ExchangeBatch,
    sentences: Sequence[np.ndarray],
    config: SearchConfig,
    generators: Sequence[np.random.Generator] = (),
    fluency: PerplexityFilter | None = None,
) -> list[ReplacementResult]:
    """Search for sentences after which the target ends the talk and chooses in the adversary's favour.

    Args:
        target: its networks are read; it is never asked to play.
        exchanges: the dialogues before the sentences.
        sentences: word ids of each, `<eos>` last and nowhere else.
        config: the settings of the search.
        generators: one per dialogue; only random proposals need them.
        fluency: a filter that candidates must pass; None for all sentences.

    Returns:
        One result per dialogue.
    """
    search = _Search(target, exchanges, sentences, config, generators, fluency)
    return search.run(search.judge_reactive, config.goal)


@torch.no_grad()
def preemptive(
    target: NegotiatorAgent,
    exchanges: ExchangeBatch,
    sentences: Sequence[np.ndarray],
    config: SearchConfig,
    generators: Sequence[np.random.Generator],
    fluency: PerplexityFilter | None = None,
) -> list[ReplacementResult]:
    """Search for sentences after whose reply the adversary should end the talk.

    Args:
        target: its networks are read and its replies sampled, at its own temperature.
        exchanges: the dialogues before the sentences.
        sentences: word ids of each, `<eos>` last and nowhere else.
        config: the settings of the search.
        generators: one per dialogue; they decide the draws of the replies.
        fluency: a filter that candidates must pass; None for all sentences.

    Returns:
        One result per dialogue; `reached` is judged on replies that the search has not used.
    """
    search = _Search(target, exchanges, sentences, config, generators, fluency)
    search.draw_replies()
    results = search.run(search.judge_preemptive, config.preemptive_goal)
    hopeful = np.array([d for d, result in enumerate(results) if result.reached], dtype=np.int64)
    if not hopeful.size:
        return results
    search.draw_replies()
    expected = search.judge_replies(search.unchanged(hopeful), config.replies, 1, search.any_code)
    for row, d in enumerate(hopeful.tolist()):
        step = search.step(expected, row, d, -1, -1)
        reached = search.reaches(step, config.preemptive_goal)
        results[d] = replace(results[d], reached=reached, reads=step.reads, decisions=step.decisions)
    return results


class _Search:
    """A search that replaces words in the sentences of n dialogues side by side."""

    def __init__(
        self,
        target: NegotiatorAgent,
        exchanges: ExchangeBatch,
        sentences: Sequence[np.ndarray],
        config: SearchConfig,
        generators: Sequence[np.random.Generator],
        fluency: PerplexityFilter | None,
    ) -> None:
        self.target, self.exchanges, self.config, self.generators = target, exchanges, config, generators
        self.fluency = fluency
        self.vocabulary, self.domain = target.vocabulary, target.model.domain
        self.words = offered_words(self.vocabulary, config.allow_special)
        self.values = Values.of(exchanges.contexts, self.domain)
        self.lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
        self.sentences = np.full((len(sentences), int(self.lengths.max())), PAD_ID, dtype=np.int64)
        for d, sentence in enumerate(sentences):
            self.sentences[d, : len(sentence)] = sentence
        self.reads, self.decisions, self.kept_out = np.zeros((3, len(exchanges)), dtype=np.int64)
        self.any_code = np.full(len(exchanges), np.inf)
        self.tokens, self.prefixes = self._read()

    def run(self, judge: Judge, goal: float) -> list[ReplacementResult]:
        """Replace words until the key no longer falls, the limit is reached, or the goal is reached and suffices."""
        size = len(self.exchanges)
        first = judge(self.unchanged(np.arange(size)), self.any_code)
        # A sentence that the filter stops is worse than any other.
        filtered = ~self._admissible(self.unchanged(np.arange(size)))
        keys = [(True, np.inf, np.inf) if filtered[d] else first.key(d) for d in range(size)]
        codes = np.where(first.broken | filtered, np.inf, codes_of(first.loss, first.advantage))
        steps = [[self.step(first, d, d, -1, -1)] for d in range(size)]
        enough = np.array([self._stops(steps[d][-1], goal) for d in range(size)]) & ~filtered
        active = np.flatnonzero((self.lengths > 1) & ~enough)
        for _ in range(self.config.max_replacements):
            if not active.size:
                break
            candidates, scores = self._propose(active, judge, codes)
            going = []
            for row in scores.best(candidates.dialogues).tolist():
                d, position, word = (int(x[row]) for x in (candidates.dialogues, candidates.positions, candidates.words))
                # A word that replaces itself gains only rounding.
                if scores.key(row) < keys[d] and word != self.sentences[d, position]:
                    keys[d] = scores.key(row)
                    codes[d] = np.inf if scores.broken[row] else codes_of(scores.loss[row], scores.advantage[row])
                    self.sentences[d, position] = word
                    filtered[d] = False
                    steps[d].append(self.step(scores, row, d, position, word))
                    if not self._stops(steps[d][-1], goal):
                        going.append(d)
            self.tokens, self.prefixes = self._read()
            active = np.array(going, dtype=np.int64)
        gaps, probabilities = self._answers()
        return [
            ReplacementResult(
                sentence=self.sentences[d, : self.lengths[d]],
                steps=tuple(steps[d]),
                reached=self.reaches(steps[d][-1], goal) and not filtered[d],
                ends=bool(gaps[d] <= 0),
                end_probability=float(probabilities[d]),
                reads=int(self.reads[d]),
                decisions=int(self.decisions[d]),
                kept_out=int(self.kept_out[d]),
            )
            for d in range(size)
        ]

    def unchanged(self, dialogues: np.ndarray) -> Candidates:
        """Return the current sentences as candidates: their `<eos>` replaced by itself."""
        return Candidates(dialogues, self.lengths[dialogues] - 1, np.full(len(dialogues), EOS_ID))

    def judge_reactive(self, candidates: Candidates, below: np.ndarray | None) -> Scores:
        """Score candidates by eq. 5-7: the target's end of the talk and its choice."""
        config, hard = self.config, self.config.constraint == "hard"
        gaps = self._gaps(candidates)
        np.add.at(self.reads, candidates.dialogues, 1)
        broken = gaps > -config.end_margin if hard else np.zeros(len(candidates), dtype=bool)
        # A black box shows whether the talk has ended, not how near its end was.
        loss = np.where(broken & (config.loss != "outcome"), gaps, 0.0)
        temperature = self.target.temperature or 1.0
        penalty = np.zeros(len(candidates)) if hard else config.penalty * np.maximum(0.0, gaps / temperature)
        adversary, target = np.zeros((2, len(candidates)))
        permitted = np.flatnonzero(~broken)
        if permitted.size:
            endings = self._endings(candidates[permitted], *self._end_now(len(permitted)))
            queries = Queries(candidates.dialogues[permitted], endings, penalty[permitted])
            loss[permitted], adversary[permitted], target[permitted] = self._choose(queries, 1, below)
        return Scores(broken, loss, adversary, target)

    def judge_preemptive(self, candidates: Candidates, below: np.ndarray | None) -> Scores:
        """Score candidates by eq. 8: the target's choice after its reply.

        A few replies screen all candidates, many judge the best. The others cannot win: means over few and over many replies do
        not compare.
        """
        config = self.config
        if config.screening_replies == config.replies:
            return self.judge_replies(candidates, config.replies, 1, below)
        scores = self.judge_replies(candidates, config.screening_replies, config.finalists, self.any_code)
        best = np.sort(scores.best(candidates.dialogues, config.finalists))
        judged = self.judge_replies(candidates[best], config.replies, 1, below)
        loss, adversary, target = np.full(len(candidates), np.inf), scores.adversary.copy(), scores.target.copy()
        loss[best], adversary[best], target[best] = judged.loss, judged.adversary, judged.target
        return Scores(scores.broken, loss, adversary, target)

    def judge_replies(self, candidates: Candidates, count: int, most: int, below: np.ndarray | None) -> Scores:
        """Return mean loss and points over the first `count` replies; exact for the `most` best of each dialogue."""
        np.add.at(self.reads, candidates.dialogues, 1)
        size = max(1, BLOCK // count)
        parts = [self._end_after_reply(candidates[i : i + size], count) for i in range(0, len(candidates), size)]
        suffixes, widths = (np.concatenate(column) for column in zip(*parts, strict=True))
        endings = self._endings(candidates[np.repeat(np.arange(len(candidates)), count)], suffixes, widths)
        queries = Queries(candidates.dialogues, endings, np.zeros(len(candidates)), count)
        return Scores(np.zeros(len(candidates), dtype=bool), *self._choose(queries, most, below))

    def draw_replies(self) -> None:
        """Draw new numbers for the words of the target's replies, by dialogue, reply and position."""
        shape = (self.config.replies, REPLY_WORDS)
        self._draws = np.stack([generator.random(shape, dtype=np.float32) for generator in self.generators])

    def _read(self) -> tuple[np.ndarray, Prefixes]:
        """Return the dialogues with their current sentences in the target's view (n, P), and the target's reading."""
        starts = self.exchanges.lengths
        ends = starts + 1 + self.lengths
        tokens = np.full((len(starts), int(ends.max())), PAD_ID, dtype=np.int64)
        for d, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            tokens[d, :start] = self.exchanges.tokens[d, :start]
            tokens[d, start] = self.vocabulary.them_id
            tokens[d, start + 1 : end] = self.sentences[d, : self.lengths[d]]
        return tokens, Prefixes(self.target.tables, self.exchanges.contexts[1], tokens, ends)

    def _propose(self, active: np.ndarray, judge: Judge, below: np.ndarray) -> tuple[Candidates, Scores]:
        """Return candidates for one more replacement in each active dialogue, and their scores."""
        proposals, positions = self.config.proposals, [np.arange(self.lengths[d] - 1) for d in active.tolist()]
        if proposals == "random":
            candidates = self._at_random(active)
        elif proposals == "gradient":
            candidates = self._by_gradient(active, judge == self.judge_reactive)
        else:
            if proposals == "pad-scan":
                index = np.repeat(active, [len(p) for p in positions])
                padded = Candidates(index, np.concatenate(positions), np.full(len(index), PAD_ID))
                positions = [padded.positions[[row]] for row in judge(padded, None).best(index).tolist()]
            candidates = self._everywhere(active, positions)
        fluent = self._admissible(candidates)
        np.add.at(self.kept_out, candidates.dialogues[~fluent], 1)
        candidates = candidates[np.flatnonzero(fluent)]
        return candidates, judge(candidates, below) if len(candidates) else Scores(*np.zeros((4, 0)))

    def _admissible(self, candidates: Candidates) -> np.ndarray:
        return admissible(self.fluency, self.exchanges, self.tokens, self.lengths, candidates)

    def _everywhere(self, active: np.ndarray, positions: Sequence[np.ndarray]) -> Candidates:
        count = len(self.words)
        index = np.repeat(active, [len(p) * count for p in positions])
        return Candidates(index, np.repeat(np.concatenate(positions), count), np.tile(self.words, len(index) // count))

    def _at_random(self, active: np.ndarray) -> Candidates:
        count, positions, words = self.config.candidates, [], []
        for d in active.tolist():
            positions.append(self.generators[d].integers(self.lengths[d] - 1, size=count))
            words.append(self.words[self.generators[d].integers(len(self.words), size=count)])
        return Candidates(np.repeat(active, count), np.concatenate(positions), np.concatenate(words))

    def _by_gradient(self, active: np.ndarray, reactive: bool) -> Candidates:
        """Return the candidates with the largest first-order fall of the loss, given `<selection>` or the first reply."""
        unchanged = self.unchanged(active)
        suffixes, widths = self._end_now(len(active)) if reactive else self._end_after_reply(unchanged, 1)
        starts, ends = self.exchanges.lengths[active] + 1, self.exchanges.lengths[active] + 1 + self.lengths[active]
        tokens = np.full((len(active), int((ends + widths).max())), PAD_ID, dtype=np.int64)
        for i, end in enumerate(ends.tolist()):
            tokens[i, :end] = self.tokens[active[i], :end]
            tokens[i, end : end + widths[i]] = suffixes[i, : widths[i]]
        contexts, values = self.exchanges.contexts[1][active], self.values.rows(active)

        def loss_of(words_nTV: Tensor, items_n6K: Tensor) -> Tensor:
            loss = losses(selection_scores(items_n6K, contexts, self.domain), values, self.config.loss, float("inf"))
            if not reactive:
                return loss
            answers = words_nTV[torch.arange(len(active)), torch.from_numpy(ends)] + self._unspeakable()
            gaps = (end_gaps(answers) + self.config.end_margin) / (self.target.temperature or 1.0)
            return loss + self.config.penalty * gaps.clamp_min(0)

        changes_nTV = word_changes(self.target.model, contexts, tokens, ends + widths, loss_of)
        positions, words = [], []
        for i in range(len(active)):
            table = changes_nTV[i, starts[i] : ends[i] - 1][:, torch.from_numpy(self.words)]
            count = min(self.config.candidates, table.numel())
            best = table.flatten().topk(count, largest=False).indices.cpu().numpy()
            positions.append(best // len(self.words))
            words.append(self.words[best % len(self.words)])
        return Candidates(np.repeat(active, [len(p) for p in positions]), np.concatenate(positions), np.concatenate(words))

    def _choose(self, queries: Queries, most: int, below: np.ndarray | None) -> Choices:
        """Return the choices after candidates, exact for the `most` best of each dialogue."""
        np.add.at(self.decisions, queries.dialogues, queries.replies)
        chooser = Chooser(self.target.tables.screening, self.prefixes, self.exchanges.contexts[1], self.values, self.config)
        return chooser.choices(queries, most, below)

    def _gaps(self, candidates: Candidates) -> np.ndarray:
        """Return the target's distance (r,) from ending the talk, in logits at temperature 1."""
        parts = [end_gaps(self._answer_logits(candidates[i : i + BLOCK])) for i in range(0, len(candidates), BLOCK)]
        return (self.target.temperature or 1.0) * torch.cat(parts).cpu().numpy().astype(np.float64)

    def _answer_logits(self, candidates: Candidates) -> Tensor:
        return self.target.logits(self.prefixes.states(self._endings(candidates, *self._answer(len(candidates)))))

    def _answers(self) -> tuple[np.ndarray, np.ndarray]:
        """Return gaps and probabilities (n,) of `<selection>` as the answer to the current sentences."""
        logits_nV = self._answer_logits(self.unchanged(np.arange(len(self.exchanges))))
        gaps = end_gaps(logits_nV)
        greedy = self.target.temperature == 0
        probabilities = (gaps <= 0).float() if greedy else logits_nV.softmax(1)[:, SELECTION_ID]
        return gaps.cpu().numpy(), probabilities.cpu().numpy()

    def _unspeakable(self) -> Tensor:
        mask = torch.zeros_like(self.target.word_bias_V)
        mask[list(self.vocabulary.unspeakable_ids)] = -torch.inf
        return mask

    def _answer(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the suffix before the target's answer: tokens (count, 1) and lengths."""
        return np.full((count, 1), self.vocabulary.you_id), np.ones(count, dtype=np.int64)

    def _end_now(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the suffix after a reactive sentence, the target's `<selection>`: tokens (count, 2) and lengths."""
        return np.tile([self.vocabulary.you_id, SELECTION_ID], (count, 1)), np.full(count, 2)

    def _end_after_reply(self, candidates: Candidates, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the suffixes after preemptive sentences: `count` sampled replies each, and `<selection>` behind a reply.

        Returns:
            Tokens (r * count, W), the replies of a candidate one after the other, and their lengths.
        """
        states = self.prefixes.states(self._endings(candidates, *self._answer(len(candidates))))
        rows = torch.arange(len(candidates), device=states.device).repeat_interleave(count)
        dialogues = torch.from_numpy(candidates.dialogues).to(states.device)
        gates = self.prefixes.context_gates_n3H[dialogues[rows]]
        draws = self._draws[candidates.dialogues, :count].reshape(-1, REPLY_WORDS)
        words, lengths = self.target.sample(states[rows], gates, draws)
        replies, widths = words.cpu().numpy(), lengths.cpu().numpy()
        suffixes = np.full((len(replies), 1 + REPLY_WORDS + 2), PAD_ID, dtype=np.int64)
        suffixes[:, 0] = self.vocabulary.you_id
        suffixes[:, 1 : 1 + REPLY_WORDS] = replies
        row = np.arange(len(replies))
        suffixes[row, 1 + widths] = self.vocabulary.them_id
        suffixes[row, 2 + widths] = SELECTION_ID
        ended = (widths == 1) & (replies[:, 0] == SELECTION_ID)
        return suffixes, np.where(ended, 2, widths + 3)

    def _endings(self, candidates: Candidates, suffixes: np.ndarray, widths: np.ndarray) -> Endings:
        """Return the edited dialogues from the edited word on, followed by the first `widths` tokens of `suffixes`."""
        rest = self.lengths[candidates.dialogues] - candidates.positions
        width = int((rest + widths).max())
        columns = np.arange(width)
        positions = np.minimum(candidates.positions[:, None] + columns, self.sentences.shape[1] - 1)
        after = np.clip(columns - rest[:, None], 0, suffixes.shape[1] - 1)
        edited = self.sentences[candidates.dialogues[:, None], positions]
        tokens = np.where(columns < rest[:, None], edited, np.take_along_axis(suffixes, after, 1))
        tokens[:, 0] = candidates.words
        keeps = self.exchanges.lengths[candidates.dialogues] + 1 + candidates.positions
        return Endings(candidates.dialogues, keeps, tokens, rest + widths)

    def reaches(self, step: ReplacementStep, goal: float) -> bool:
        """Return True if the sentence keeps the constraint and the target's choice pays enough.

        # Released: the loss alone decides, which counts the points of a choice that the target would not yet make.
        # Ours: so for that loss.
        """
        return not step.broken and (step.loss <= -goal if self.config.loss == "released" else step.advantage >= goal)

    def _stops(self, step: ReplacementStep, goal: float) -> bool:
        return self.config.stop_at_goal and self.reaches(step, goal)

    def step(self, scores: Scores, row: int, d: int, position: int, word: int) -> ReplacementStep:
        """Return the step for one candidate of dialogue `d`, with the queries so far."""
        return ReplacementStep(
            position=position,
            word=word,
            broken=bool(scores.broken[row]),
            loss=float(scores.loss[row]),
            points=(float(scores.adversary[row]), float(scores.target[row])),
            reads=int(self.reads[d]),
            decisions=int(self.decisions[d]),
        )
