"""Search by replies alone: `parley search text`, for chat models without access to weights and likelihoods.

Inputs of words evolve (`parley.engine.triggers.methods.evolution`), or an attacker model writes them and mends them from
replies (`parley.engine.triggers.methods.writing`), until the reply to one is a success. The controls of each target are the
reply to no input, and replies to as many random inputs as the search may try, until one of these is a success. Answers and
words are kept in the run: a resumed run asks nothing twice.

All targets of a worker ask in rounds: for the reply to no input first, then for those to the inputs that their searches and
their random controls propose. Answers are counted as they come, and a turn ends between two of them. Rows are those of
`parley.engine.triggers.verbs.config.TEXT_TRIGGERS`.

An answer that is no reply (`parley.policies.chat.model.AnswerKind`) has no success, whatever was asked: no input, a random one
or one of the search. Its input is less fit than any other, it counts as a query, and the search goes on.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, cast

from parley.engine.core.ray.record import Counts, Rows
from parley.engine.core.ray.worker import IndexedItems, Shard, TurnResult, TurnWorker, UnderWay
from parley.engine.core.runs.documents import SUMMARY
from parley.engine.core.runs.parts import count_no_replies, ok_row
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.statistics import finished
from parley.engine.core.tables.table import EstimateTable
from parley.engine.core.verbs.job import ATTACK, TABLE_FILE, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, Sharded, Tally, rows_apart, run_items
from parley.engine.core.verbs.transcripts import TranscriptRule
from parley.engine.triggers.budget import Spending, clock_of, price_of, tokens_of
from parley.engine.triggers.catalogue import EVOLUTION, PRS, QCG
from parley.engine.triggers.methods.composition import AttackComposition, settings_told, shown_access
from parley.engine.triggers.methods.evolution import NO_FITNESS, Evolution, EvolutionSettings, Proposals, RatedReply, Words
from parley.engine.triggers.methods.prs import Prs
from parley.engine.triggers.methods.qcg import Qcg
from parley.engine.triggers.methods.writing import Writing, asked_for_words, read_words
from parley.engine.triggers.metrics.hits import VERIFIED, successful_reply, unread_failure
from parley.engine.triggers.metrics.text import (
    TEXT_ITEMS,
    TEXT_METRICS,
    ShownInput,
    describe_text,
    shown_inputs,
    text_metrics,
    text_table,
)
from parley.engine.triggers.success import (
    BEFORE_TARGET,
    enough_tokens,
    likelihood_rating,
    load_fitness,
    load_fluency,
    rated_nats,
)
from parley.engine.triggers.targets import Target, TargetList, from_file, has_prompts, malicious, read_pairs, target_seed
from parley.engine.triggers.verbs.config import (
    MAL,
    TEXT_TRIGGERS,
    WORDS,
    TextSearchConfig,
    TextSearchPlan,
    input_words,
    save_words,
    trigger_transcripts,
)
from parley.engine.triggers.verbs.models import FILE, as_written, kept_targets, limited, num_targets, save_targets
from parley.engine.triggers.verbs.search import AT_MOST, MOST_PARTS
from parley.engine.triggers.verbs.turns import JudgedAnswer, judge_columns, judged_columns, judges_of_replies
from parley.envs.core.errors import ConfigError, ModelError
from parley.envs.core.seeds import derive_seed
from parley.policies.chat.addresses import absolute_address
from parley.policies.chat.answers import answers_arriving
from parley.policies.chat.model import (
    ANSWERS_FOLDER,
    MODERATED,
    MOST_FIRST_TOKENS,
    Access,
    Answer,
    AnswerKind,
    Chat,
    ChatDecoding,
    ChatModel,
    ScoringChatModel,
    first_token_nats,
    require_access,
)
from parley.policies.chat.questions import WrittenLine, written_lines
from parley.policies.chat.verdicts import ReplyRating, ReplyVerdict
from parley.policies.hugging_face import ANY


def num_tokens(plan: TextSearchPlan) -> int:
    """Return the most tokens of a reply: as many as the longest target may have, if only its beginning is judged."""
    config, targets = plan.config, [" ".join(target.words) for target in plan.targets.targets]
    looks_further = config.attacker or config.fitness.by != "target" or config.success.by not in ("target", "exact", "prefix")
    most = config.success.tokens or enough_tokens(targets)
    if config.success.tokens or looks_further:
        return most
    return min(most, max(len(target.encode()) for target in targets) + BEFORE_TARGET)


def text_composition(config: TextSearchConfig) -> AttackComposition:
    """Return the attack as a composition."""
    method_text = f"evolution: {settings_told(config.search, 'num_words', 'population', 'mutation', 'max_queries')}"
    if config.attacker:
        written = settings_told(config.writing, "streams", "memory", "max_words", "temperature")
        method_text = f"{config.attacker} writes: {written}, max_queries={config.search.max_queries}"
    elif config.method != EVOLUTION:
        settings = getattr(config, config.method)
        method_text = f"{config.method}: {settings_told(settings, *vars(settings))}"
        method_text += f", {settings_told(config.search, 'num_words', 'max_queries')}"
        method_text += f", proxy={config.proxy}" if config.proxy else ""
    parts = {name: getattr(config, name) for name in ("template", "words", "start", "forbidden", "alphabet", "end")}
    return AttackComposition(
        victim=config.model,
        shows=shown_access(config.model, config.asking, by_messages=True),
        method=method_text + f", budget {config.budget}" * bool(config.budget),
        reads=Access.FIRST_TOKENS if config.reads_logprobs else Access.TEXT,
        objective=f"fitness {settings_told(replace(config.fitness, by=config.fitness_by), 'by')}, until a success",
        prompts=f"{config.targets}: {', '.join(f'{name}={value}' for name, value in parts.items() if value and value != ANY)}",
        success=settings_told(config.success, "by"),
    )


def messages_of(config: TextSearchConfig, *, has_prompts: bool) -> Chat:
    """Return the messages that inputs stand in.

    Args:
        config: the search.
        has_prompts: whether its targets come with prompts.

    Raises:
        ConfigError: no template is called so, it is a prompt that is written out, or it does not fit the targets.
        DataError: its file holds no messages.
    """
    from parley.policies.chat.model import Message
    from parley.policies.chat.templates import PROMPT, SLOT, num_slots, template_of

    template = template_of(config.template or None, has_prompts=has_prompts) or (Message("user", SLOT),)
    if isinstance(template, str) or not num_slots(template):
        fix = "user, prefix, suffix, system, or a JSON file of messages with {}"
        raise ConfigError("the model takes messages", where="--template", got=config.template, fix=fix)
    if has_prompts != any(PROMPT in message.content for message in template):
        fix = "write {prompt} into the template where targets have prompts, and only there"
        raise ConfigError("the template does not fit the targets", where="--template", got=config.template, fix=fix)
    return template


def slot_texts(template: Chat, words: Words) -> list[str]:
    """Return the text in each slot of messages, which share the words of an input in order."""
    from parley.policies.chat.templates import num_slots

    num = num_slots(template)
    ends = [len(words) * slot // num for slot in range(num + 1)]
    return [" ".join(words[start:end]) for start, end in pairwise(ends)]


def probability_of(fitness: float) -> float:
    """Return the probability of the target's first token by the fitness of an input."""
    return math.exp(min(0.0, rated_nats(fitness)))


UNRATED = ReplyRating(0.0)
"""Fitness of the reply to no input, which is only a control, and of an answer that is no reply."""
_TARGETS = 8
"""Targets of a worker at a time; all their questions are asked at once."""
_PERMILLE = 1000
_CLOSENESS, _CLIMBING = "closeness", "climbing"
"""Counts of targets: thousandths of the fitness of their best replies, and the number of targets with one."""


@dataclass(frozen=True)
class TextSearchTask(Sharded[Target]):
    """A search for targets by replies alone.

    Args:
        plan: the checked configuration.
        answers: the folder in which answers are kept.
    """

    unit = "targets"
    event = "searched"

    plan: TextSearchPlan
    answers: str

    def seed(self, key: str) -> int:
        return target_seed(self.plan.config.seed, key)

    def worker(self) -> TextSearchWorker:
        return TextSearchWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return -(-num_items // MOST_PARTS)

    def room(self, shard_size: int) -> int:
        return max(1, _TARGETS // shard_size)

    def digest(self, rows: Rows) -> Counts:
        done = finished(rows)
        counts = Counter({self.unit: len(done), "successes": sum(bool(row[VERIFIED]) for row in done)})
        counts["queries"] = sum(row["queries"] + row["random_queries"] for row in done)
        counts["no reply"] = sum(entry["answers"] for row in done for entry in row["no_replies"])
        best = [row["fitness"] for row in done if row["fitness"] is not None]
        counts[_CLIMBING], counts[_CLOSENESS] = len(best), sum(map(_permille, best))
        return counts

    def describe(self, tally: Tally) -> str:
        parts = [f"successes: {tally.total['successes']:,}", f"queries: {tally.total['queries']:,}"]
        if climbing := tally.total[_CLIMBING]:
            parts.append(f"closest replies {tally.total[_CLOSENESS] / _PERMILLE / climbing:.2f} of 1 on average")
        if without := tally.total["no reply"]:
            parts.append(f"no reply: {without:,}")
        if not tally.session[self.unit]:
            parts.append(AT_MOST)
        return ", ".join(parts)


def _permille(fitness: float) -> int:
    return round(_PERMILLE * min(1.0, max(0.0, fitness)))


class TextSearchWorker(TurnWorker[Target, Rows]):
    """A worker that holds the model, and searches for the targets of several shards side by side.

    Args:
        search_task: what is searched for.
    """

    def __init__(self, search_task: TextSearchTask) -> None:
        from parley.policies.chat.loading import load_chat_model

        self.search_task, self.config = search_task, search_task.plan.config
        chat, answers = self.config.asking.on(self.config.device), Path(search_task.answers)
        self.model: ChatModel = load_chat_model(absolute_address(self.config.model), chat, answers=answers)
        self.template = messages_of(self.config, has_prompts=search_task.plan.targets.has_prompts)
        self._success = judges_of_replies(self.config.success, chat, answers)[self.config.end]
        self.fitness = load_fitness(self.config.fitness, chat, answers)
        self.cost = load_fluency(self.config.fitness, chat)
        self._num_tokens = num_tokens(search_task.plan)
        self._usual_queries: list[int] = []
        attacker = self.config.attacker
        self._attacker = load_chat_model(absolute_address(attacker), chat, answers=answers) if attacker else None
        proxy = self.config.proxy
        self._proxy: Any = load_chat_model(absolute_address(proxy), chat, answers=answers) if proxy else None
        models = filter(None, (self.model, self._attacker, self._proxy))
        self.clock, self.budget = clock_of(*models), replace(self.config.limits, queries=0)
        self.price = partial(price_of, self.config.chat)
        self._decoding = ChatDecoding(
            max_tokens=self._num_tokens, first_tokens=MOST_FIRST_TOKENS if self.config.reads_logprobs else 0
        )
        self.drop()

    def drop(self) -> None:
        self._running: dict[str, Shard[_TextSearch]] = {}
        self._round: _Round | None = None

    def turn(self, joining: Sequence[Shard[Target]], seconds: float) -> TurnResult[Rows]:
        """Take answers until the time is up or a shard has ended; new shards ask in the next round."""
        until = time.monotonic() + seconds
        for shard in joining:
            searches = tuple(_TextSearch(self, target) for target in shard.items)
            self._running[shard.name] = Shard(shard.name, shard.keys, searches)
        ended: dict[str, Rows] = {}
        while self._running and not ended:
            if self._round is None:
                going = [search for shard in self._running.values() for search in shard.items if not search.finished]
                self._round = _Round(self, going)
            if not self._round.take(until):
                break
            self._round = None
            for name in [name for name, shard in self._running.items() if all(search.finished for search in shard.items)]:
                over = self._running.pop(name)
                self._usual_queries += [search.num_answers for search in over.items]
                ended[name] = rows_apart(lambda shard: [search.row() for search in shard.items], over, self.search_task.seed)
        return TurnResult(ended, {name: self._progress(shard.items) for name, shard in self._running.items()})

    def _progress(self, searches: Sequence[_TextSearch]) -> UnderWay:
        """Return the progress of searches: their queries, by those of ended searches, or by the limit."""
        most = 1 + 2 * self.config.search.max_queries
        usual = sum(self._usual_queries) / len(self._usual_queries) if self._usual_queries else most
        counts = Counter[str]()
        for search in searches:
            counts.update(search.counts())
        shares = (max(search.num_answers / max(1, usual), search.share_spent) for search in searches)
        return UnderWay(sum(min(0.9, share) for share in shares), counts)

    def arriving(self, chats: Sequence[Chat]) -> Iterator[tuple[int, Answer]]:
        """Return an iterator of the model's likeliest answers as they come."""
        return answers_arriving(self.model, chats, decoding=self._decoding)

    def drawn(self, chats: Sequence[Chat], temperature: float, seeds: Sequence[int]) -> list[Answer]:
        """Return answers that are drawn."""
        decoding = ChatDecoding(max_tokens=self._num_tokens, temperature=temperature)
        return self.model.answer(chats, decoding=decoding, seeds=seeds) if chats else []

    def chat(self, target: Target, words: Words) -> Chat:
        """Return the messages with an input in their slots, which share its words in order."""
        from parley.policies.chat.templates import filled_chat

        return filled_chat(self.template, target.prompt, slot_texts(self.template, words))

    def proposals(self, target: Target, seed: int, spending: Spending) -> Proposals:
        """Return the search that proposes inputs for a target, and adds what an attacker costs to its spending."""
        settings, attacker = self.config.writing, self._attacker
        if attacker is None:
            words, search = self.search_task.plan.words, self.config.search
            sizes: dict[str, Any] = {"num_words": search.num_words, "max_queries": search.max_queries}
            bounds: dict[str, Any] = {"start": tuple(self.config.start.split()), "allows": self.config.allows}
            if self.config.method == PRS:
                return Prs(self.config.prs, words, seed, probability=probability_of, **sizes, **bounds)
            if self.config.method == QCG:
                text = " ".join(target.words)

                def likelihoods(inputs: Sequence[Words]) -> list[float]:
                    scores = self._proxy.score([self.chat(target, words) for words in inputs], [text] * len(inputs))
                    return [score.nats for score in scores]

                return Qcg(self.config.qcg, words, seed, likelihoods=likelihoods, **sizes, **bounds)
            return Evolution(search, words, seed, **bounds)
        decoding = ChatDecoding(max_tokens=settings.max_tokens, temperature=settings.temperature)

        def lines(questions: Sequence[tuple[Sequence[Chat], int]]) -> list[WrittenLine]:
            most = settings.max_words
            return written_lines(
                attacker,
                questions,
                decoding,
                lambda answer: read_words(answer, most, self.config.allows),
                lambda problem: asked_for_words(problem, most),
            )

        def write(questions: Sequence[tuple[Sequence[Chat], int]]) -> list[WrittenLine]:
            written, began = list[WrittenLine](), self.clock()
            for piece in [[question] for question in questions] if str(self.budget) else [questions]:
                if replace(spending, seconds=spending.seconds + self.clock() - began).used_up(self.budget):
                    break
                written += (new := lines(piece))
                self._spend_on_lines(spending, piece, new)
            return written

        shown = "\n\n".join(f"[{message.role}] {message.content}" for message in self.chat(target, ("[WORDS]",)))
        max_queries, text = self.config.search.max_queries, " ".join(target.words)
        return Writing(settings, max_queries, target=text, shown=shown, write=write, seed=seed)

    def _spend_on_lines(
        self, spending: Spending, questions: Sequence[tuple[Sequence[Chat], int]], lines: Sequence[WrittenLine]
    ) -> None:
        assert self._attacker is not None, "an attacker wrote them"
        for (forms, _), line in zip(questions, lines, strict=True):
            for read, written in (tokens_of(forms[0], answer) for answer in line.answers):
                spending.add(attacker_tokens=read + written, money=self.price(self._attacker, read, written))

    def rated(self, answers: Mapping[Words, Answer], target: Target) -> list[ReplyRating]:
        """Return the fitness of the replies to some inputs."""
        text = " ".join(target.words)
        if not self.config.reads_logprobs:
            return self.fitness([answer.text for answer in answers.values()], text, target.prompt) if answers else []
        nats = [first_token_nats(answer, text) for answer in answers.values()]
        if answers and not any(answer.first_tokens for answer in answers.values()):
            # A model of one's own, which scores texts.
            scores = cast("ScoringChatModel", self.model).score(
                [self.chat(target, words) for words in answers], [text] * len(answers)
            )
            nats = [score.nats / score.num_tokens for score in scores]
        return list(map(likelihood_rating, nats))

    def judged(self, answer: Answer, target: Target) -> ReplyVerdict:
        """Return the verdict on an answer."""
        return self._success.verdict(answer, " ".join(target.words), target.prompt)


class _Round:
    """One round of questions of several searches, whose answers arrive one by one."""

    def __init__(self, worker: TextSearchWorker, searches: Sequence[_TextSearch]) -> None:
        self._worker, self._searches, self._to_ask = worker, searches, deque(searches)
        self._chats: list[Chat] = []
        self._owners: list[_TextSearch] = []
        self._answers: dict[int, Answer] = {}
        self._arriving: Iterator[tuple[int, Answer]] | None = None
        self._seconds = 0.0

    def take(self, until: float) -> bool:
        """Take answers until a time; return whether all are there and the searches have them."""
        while self._to_ask:
            # An attacker that writes inputs writes them here.
            search = self._to_ask.popleft()
            chats = search.ask()
            self._chats += chats
            self._owners += [search] * len(chats)
            if self._to_ask and time.monotonic() >= until:
                return False
        if self._arriving is None:
            self._arriving = self._worker.arriving(self._chats) if self._chats else iter(())
        began = self._worker.clock()
        for index, answer in self._arriving:
            self._answers[index] = answer
            self._owners[index].waiting.append(answer)
            if len(self._answers) < len(self._chats) and time.monotonic() >= until:
                self._seconds += self._worker.clock() - began
                return False
        self._seconds += self._worker.clock() - began
        share = self._seconds / max(1, sum(not answer.known for answer in self._answers.values()))
        answers = ((self._chats[index], self._answers[index]) for index in range(len(self._chats)))
        for search in self._searches:
            search.tell(list(islice(answers, search.num_asked)), share)
        return True


class _JudgedReply(NamedTuple):
    """An answer of the model to an input, with its verdict."""

    answer: Answer
    verdict: ReplyVerdict
    rating: ReplyRating
    cost: float

    @property
    def fitness(self) -> float:
        """Return the fitness; the higher the better."""
        return self.rating.value + self.verdict.success - self.cost if self.answer.is_reply else NO_FITNESS


@dataclass(eq=False)
class _TextSearch:
    """The search for one target: first the reply to no input, then the search beside random inputs."""

    worker: TextSearchWorker
    target: Target
    waiting: list[Answer] = field(default_factory=list)
    """Answers of the round under way, in the order in which they came."""

    def __post_init__(self) -> None:
        self.seed = self.worker.search_task.seed(self.target.key)
        spending = Spending()
        self.search = self.worker.proposals(self.target, self.seed, spending)
        arguments = self.worker.config.search, self.worker.search_task.plan.words
        self.random = Evolution(*arguments, derive_seed(self.seed, "random"), allows=self.worker.config.allows, blind=True)
        self.replies: dict[Proposals | None, dict[Words, _JudgedReply]] = {None: {}, self.search: {}, self.random: {}}
        self.spendings = {self.search: spending, self.random: Spending()}
        self.requests: list[tuple[Proposals | None, list[Words]]] = []
        self._proposed: dict[Proposals, list[Words]] = {self.search: [], self.random: []}
        self._rated: dict[Proposals, list[RatedReply]] = {self.search: [], self.random: []}

    @property
    def finished(self) -> bool:
        """Return True once no more replies are needed."""
        return self.search.finished and self.random.finished

    @property
    def share_spent(self) -> float:
        """Return the share of the budget that is spent, of that search of which less is."""
        of_going = (self.spendings[going].share(self.worker.budget) for going in self.spendings if not going.finished)
        return min(of_going, default=1.0)

    @property
    def num_answers(self) -> int:
        """Return the number of answers that have come, those of the current round included."""
        return sum(map(len, self.replies.values())) + len(self.waiting)

    @property
    def num_asked(self) -> int:
        """Return the number of answers that the current round asks for."""
        return sum(len(words) for _, words in self.requests)

    def counts(self) -> Counts:
        """Return its counts while it goes on, as `TextSearchTask.digest` counts ended ones."""
        answers = [*(reply.answer for reply in self._judged_replies()), *self.waiting]
        counts = Counter(queries=len(answers))
        counts["no reply"] = sum(not answer.is_reply for answer in answers)
        counts["successes"] = any(reply.verdict.success for reply in self.replies[self.search].values())
        if self.search.members and math.isfinite(self.search.best.fitness):
            counts[_CLIMBING], counts[_CLOSENESS] = 1, _permille(self.search.best.fitness)
        return counts

    def ask(self) -> list[Chat]:
        """Return the next messages to the model: of each search all that it proposes, or one where a budget counts them."""
        self.requests = [] if self.replies[None] else [(None, [()])]
        for proposals in (self.search, self.random):
            if proposals.finished:
                continue
            if not self._proposed[proposals]:
                began = self.worker.clock()
                self._proposed[proposals] = proposals.ask()
                # Random inputs take no time, and an attacker or a proxy does.
                self.spendings[proposals].add(seconds=self.worker.clock() - began)
            most = 1 if str(self.worker.budget) else len(self._proposed[proposals])
            if not self.spendings[proposals].used_up(self.worker.budget):
                self.requests.append((proposals, self._proposed[proposals][:most]))
            elif not proposals.finished:
                proposals.end(self._rated[proposals], success=False)
        return [self.worker.chat(self.target, words) for _, inputs in self.requests for words in inputs]

    def tell(self, answers: Sequence[tuple[Chat, Answer]], seconds: float) -> None:
        """Judge the answers of a round, and hand them to their searches.

        Args:
            answers: with the messages that they answer.
            seconds: of asking for one that was not known.
        """
        self.waiting, arriving = [], iter(answers)
        for proposals, inputs in self.requests:
            new = dict(zip(inputs, islice(arriving, len(inputs)), strict=True))
            began = self.worker.clock()
            judged = self._judged({words: answer for words, (_, answer) in new.items()}, controls=proposals is None)
            self.replies[proposals] |= judged
            if proposals is None or not judged:
                continue
            spending = self.spendings[proposals]
            spending.add(seconds=self.worker.clock() - began)
            for chat, answer in new.values():
                read, written = tokens_of(chat, answer)
                spending.add(queries=1, tokens=read + written, money=self.worker.price(self.worker.model, read, written))
                spending.add(seconds=0.0 if answer.known else seconds)
            self._rated[proposals] += [
                RatedReply(reply.fitness, reply.answer.text, "" if reply.answer.is_reply else reply.answer.kind.value)
                for reply in judged.values()
            ]
            self._proposed[proposals] = self._proposed[proposals][len(judged) :]
            success = any(reply.verdict.success for reply in judged.values())
            if success or spending.used_up(self.worker.budget):
                proposals.end(self._rated[proposals], success=success)
            elif not self._proposed[proposals]:
                proposals.tell(self._rated[proposals], success=False)
                self._rated[proposals] = []

    def _judged(self, answers: dict[Words, Answer], *, controls: bool) -> dict[Words, _JudgedReply]:
        """Return answers with their verdicts; answers that are no reply, and controls, are not rated."""
        rated = {words: answer for words, answer in answers.items() if answer.is_reply and not controls}
        by_words = dict(zip(rated, self.worker.rated(rated, self.target), strict=True))
        return {
            words: _JudgedReply(
                answer,
                self.worker.judged(answer, self.target),
                by_words.get(words, UNRATED),
                self.worker.cost(" ".join(words)) if words in by_words else 0.0,
            )
            for words, answer in answers.items()
        }

    def row(self) -> dict[str, Any]:
        """Return the row of the target; drawn replies are to the fittest input."""
        if not self.search.members:
            raise self._nothing_written()
        settings, searched, at_random = self.worker.config.success, self.replies[self.search], self.replies[self.random]
        best = max(searched, key=lambda words: (searched[words].verdict.success, searched[words].fitness))
        verdicts = [judgement for reply in self._judged_replies() for judgement in (reply.verdict, reply.rating)]
        fittest, empty = searched[best], self.replies[None][()]
        seeds = [derive_seed(self.seed, "sample", number) for number in range(settings.samples)]
        chats = [self.worker.chat(self.target, best)] * len(seeds)
        drawn = [
            JudgedAnswer(answer, self.worker.judged(answer, self.target))
            for answer in self.worker.drawn(chats, settings.temperature, seeds)
        ]
        judged = judged_columns(JudgedAnswer(fittest.answer, fittest.verdict), drawn)
        judged |= judge_columns([*verdicts, *(draw.verdict for draw in drawn)])
        answers = {
            "found": [reply.answer for reply in searched.values()],
            "random": [reply.answer for reply in at_random.values()],
            "empty": [empty.answer],
            "drawn": [draw.answer for draw in drawn],
        }
        return ok_row(self.target.key, self.seed) | {
            "prompt": self.target.prompt,
            "target": " ".join(self.target.words),
            "trigger": " ".join(best),
            "typed": slot_texts(self.worker.template, best),
            "fitness": _finite(fittest.fitness),
            "fitness_by_generation": list(map(_finite, self.search.best_by_generation)),
            "queries": 1 + len(searched) + len(drawn),
            "ended": fittest.answer.ended,
            "empty_verified": empty.verdict.success,
            "random_verified": any(reply.verdict.success for reply in at_random.values()),
            "random_fitness": _finite(self.random.best.fitness),
            "random_queries": len(at_random),
            **self._costs(),
            "no_replies": count_no_replies(answers),
            **self._of_attacker(),
            **judged,
        }

    def _costs(self) -> dict[str, Any]:
        """Return the columns of what the searches cost; seconds and money alone where they are limited."""
        limits, columns = self.worker.budget, dict[str, Any]()
        for prefix, spending in zip(("", "random_"), self.spendings.values(), strict=True):
            columns[f"{prefix}tokens"] = spending.tokens
            columns[f"{prefix}seconds"] = spending.seconds if limits.seconds else None
            columns[f"{prefix}money"] = spending.money if limits.money else None
        return columns | {"attacker_tokens": self.spendings[self.search].attacker_tokens}

    def _judged_replies(self) -> list[_JudgedReply]:
        return [reply for by_words in self.replies.values() for reply in by_words.values()]

    def _of_attacker(self) -> dict[str, Any]:
        """Return the columns of an attacker that writes inputs."""
        kinds = self.search.answer_kinds if isinstance(self.search, Writing) else Counter[AnswerKind]()
        lost = [
            {"asked": "attacker", "kind": kind.value, "answers": number}
            for kind, number in sorted(kinds.items())
            if not kind.is_reply
        ]
        return {"attacker_answers": kinds.total(), "attacker_no_replies": lost}

    def _nothing_written(self) -> ModelError:
        """Return the error of an attacker of whose answers none could be used, with the reasons."""
        problems = self.search.problems if isinstance(self.search, Writing) else Counter[str]()
        reasons = "; ".join(f"{number} times: {problem}" for problem, number in problems.most_common())
        if spent := self.spendings[self.search].used_up(self.worker.budget):
            reasons = "; ".join(filter(None, [f"the budget of {spent} is used up", reasons]))
        fix = "name another --attacker, or give it more room: --set writing.max_words=N, writing.max_tokens=N"
        what = "the attacker wrote no input that could be tried"
        return ModelError(what, where=self.worker.config.attacker, got=reasons or "no line at all", fix=fix)


def _finite(fitness: float) -> float | None:
    return fitness if math.isfinite(fitness) else None


def evolution() -> TextSearchConfig:
    """16 inputs of 8 words, 200 replies for each of 20 targets."""
    return TextSearchConfig()


def quick() -> TextSearchConfig:
    """Take a first look: 5 targets, 40 replies for each."""
    return TextSearchConfig(limit=5, search=EvolutionSettings(population=8, max_queries=40))


class SearchText(Job[TextSearchConfig, TextSearchPlan, TextSearchPlan]):
    """`parley search text`."""

    words = ("search", "text")
    run_name = "search-text"
    config = TextSearchConfig
    presets = {"evolution": evolution, "quick": quick}
    schema = TEXT_TRIGGERS
    item_metrics = TEXT_ITEMS
    legend = TEXT_METRICS
    files = (TABLE_FILE, SUMMARY, FILE, WORDS, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def transcripts(self, run: RunFolder) -> TranscriptRule:
        return trigger_transcripts(run.job, run.config)

    def prepare(self, config: TextSearchConfig, path: Path, reporter: Reporter) -> TextSearchPlan:
        from parley.policies.chat.loading import load_chat_model

        if not config.model:
            fix = "--model openai:URL#MODEL, hf:FOLDER, gguf:FILE, path/file.py:Name, or a run of a response model"
            raise ConfigError("there is no model to search", where="--model", fix=fix)
        config.require_device()
        targets = kept_targets(path) or _targets(config)
        messages_of(config, has_prompts=targets.has_prompts)
        words = tuple(word for word in input_words(path, config.words, targets) if config.allows((word,)))
        if not words:
            fix = "forbid less, or name other words"
            got = f"forbidden {config.forbidden!r}, alphabet {config.alphabet!r}"
            raise ConfigError("no word may stand in an input", got=got, fix=fix)
        judges_of_replies(config.success, config.chat.on("cpu"), None)
        load_fitness(config.fitness, config.chat.on("cpu"))
        load_fluency(config.fitness, config.chat.on("cpu"))
        model = load_chat_model(config.model, config.asking.on("cpu"))
        if config.reads_logprobs:
            require_access(model, Access.FIRST_TOKENS, "search by the log probability of a target's first token")
        if config.attacker:
            load_chat_model(config.attacker, config.chat.on("cpu"))
        if config.proxy:
            require_access(load_chat_model(config.proxy, config.chat.on("cpu")), Access.SCORES, "the order of a proxy")
        return TextSearchPlan(config, targets, words)

    def work(self, run: RunFolder, prepared: TextSearchPlan, reporter: Reporter) -> TextSearchPlan:
        save_targets(prepared.targets, run.path)
        save_words(prepared.words, run.path)
        reporter.say(str(text_composition(prepared.config)))
        search_task = TextSearchTask(prepared, str((run.path / ANSWERS_FOLDER).absolute()))
        items = IndexedItems((target.key for target in prepared.targets.targets), prepared.targets.targets.__getitem__)
        title = f"searching for {prepared.targets.name} targets by replies"
        run_items(run, search_task, items, prepared.config, reporter, title)
        return prepared

    def measure(self, run: RunFolder, plan: TextSearchPlan) -> Summary:
        config = plan.config
        return Summary(
            f"search by replies for {plan.targets.name} targets on {config.model}",
            f"{len(plan.targets.targets):,} targets, at most {config.search.max_queries:,} replies each, "
            f"{f'written by {config.attacker}' if config.attacker else f'{len(plan.words):,} words'}, seed {config.seed}.",
            text_metrics(run.rows(), {part: most for part, most in vars(config.limits).items() if most}),
            {ATTACK: text_composition(config).parts},
        )

    def models(self, config: TextSearchConfig) -> Mapping[str, str]:
        return {
            name: address for name in ("model", "attacker", "proxy") if (address := getattr(config, name)) or name == "model"
        }

    def num_rows(self, config: TextSearchConfig, path: Path) -> int:
        return num_targets(path)

    def num_items(self, config: TextSearchConfig) -> int:
        return len(_targets(config).targets)

    def tables(self, run: RunFolder) -> dict[str, EstimateTable]:
        metrics = run.metrics()
        if not metrics:
            return {}
        table = text_table(metrics, successful_reply(run.config["success"], end=run.config["end"]))
        merits = ((row, -inf if row["fitness"] is None else row["fitness"]) for row in finished(run.rows()))
        return {"": table, **shown_inputs(ShownInput.of(row, row["typed"], merit=merit) for row, merit in merits)}

    def present(self, result: Result, run: RunFolder) -> Result:
        legend = {name: describe_text(name) for name in result.metrics}
        return replace(result, legend=legend, more=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _targets(config: TextSearchConfig) -> TargetList:
    """Return the texts that the model is to say; any text can be said."""
    path = Path(config.targets)
    if config.targets == MAL:
        targets = malicious(lambda words: ())
    elif not path.is_file():
        fix = "a file of pairs (CSV, TSV, JSON, JSON Lines, Parquet) or of sentences, or mal"
        raise ConfigError("there is no such list of targets", where="--targets", got=config.targets, fix=fix)
    elif has_prompts(config.targets):
        target_file = Path(config.target_file) if config.target_file else None
        targets = read_pairs(path, lambda prompt, target: None, target_file=target_file)
    else:
        targets = from_file(path, lambda words: (), words_of=as_written)
    return limited(targets.require_some(), config.limit, config.seed)


SEARCH_TEXT = SearchText()
