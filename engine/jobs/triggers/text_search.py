"""Search by replies alone: `parley search text`, for chat models whose weights and likelihoods nobody sees.

Inputs of words evolve (`engine.triggers.evolution`), or an attacker model writes them and mends them from replies
(`engine.triggers.writing`), until the reply to one is a success. Each target is told beside what
the model replies to no input, and to as many random ones as the search may try, until one of these is a success. Answers and
words are kept in the run: a resumed run asks nothing twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.jobs.apart import rows_apart
from engine.jobs.job import ATTACK, Job, Reporter, Result, Summary
from engine.jobs.sharded import RESUME_SAFE, Sharded, Tally, work_off
from engine.jobs.tables import TABLE_FILE
from engine.jobs.triggers.config import MAL
from engine.jobs.triggers.input_words import WORDS, input_words, save_words
from engine.jobs.triggers.rows import TEXT_TRIGGERS
from engine.jobs.triggers.targets import FILE, as_written, kept_targets, limited, num_targets, save_targets
from engine.jobs.triggers.text_config import TextSearchConfig, WantedTexts
from engine.jobs.triggers.text_prompts import messages_of, num_tokens, text_composition
from engine.jobs.triggers.verification import judges_of_replies, verdict_columns
from engine.jobs.triggers.worker import MOST_PARTS
from engine.metrics.rows import finished
from engine.metrics.tables import TextTable
from engine.metrics.triggers.hits import VERIFIED, unread_failure
from engine.metrics.triggers.text import TEXT_METRICS, text_metrics, text_table
from engine.runtime.record import Counts, Rows
from engine.runtime.sharding import Shard
from engine.runtime.worker import TurnResult, TurnWorker, UnderWay
from engine.store.layout import SUMMARY
from engine.store.run_folder import RunFolder
from engine.store.schemas import ok_row
from engine.triggers.evolution import Evolution, EvolutionSettings, Proposals, ToldReply, Words
from engine.triggers.fitness import load_fitness, load_fluency
from engine.triggers.target_pairs import has_prompts, read_pairs
from engine.triggers.targets import Target, TargetList, from_file, malicious, target_seed
from engine.triggers.writing import Writing, asked_for_words, read_words
from envs.core.errors import ConfigError, ModelError
from envs.core.seeds import derive_seed
from policies.chat.addresses import absolute_address
from policies.chat.answers import ANSWERS_FOLDER
from policies.chat.model import MODERATED
from policies.chat.verdicts import ReplyRating, ReplyVerdict
from policies.chat.written import WrittenLine, written_lines

if TYPE_CHECKING:
    from policies.chat.model import Answer, Chat, ChatDecoding, ChatModel

UNRATED = ReplyRating(0.0)
"""Of the reply to no input, which nothing goes on from."""
_TARGETS = 8
"""Of a worker at a time: what they ask for is asked at once."""


@dataclass(frozen=True)
class SearchingTexts(Sharded[Target]):
    """A search for targets by replies alone.

    Args:
        wanted: what is searched for.
        answers: the folder in which answers are kept.
    """

    unit = "targets"
    event = "searched"

    wanted: WantedTexts
    answers: str

    def seed(self, key: str) -> int:
        return target_seed(self.wanted.config.seed, key)

    def worker(self) -> TextSearchWorker:
        return TextSearchWorker(self)

    def shard_size(self, num_items: int, num_workers: int) -> int:
        return -(-num_items // MOST_PARTS)

    def room(self, shard_size: int) -> int:
        return max(1, _TARGETS // shard_size)

    def digest(self, rows: Rows) -> Counts:
        """Targets, replies that were asked for, and targets that the model says."""
        done = finished(rows)
        asked = sum(row["queries"] + row["random_queries"] for row in done)
        return Counter({self.unit: len(done), "queries": asked, "said": sum(bool(row[VERIFIED]) for row in done)})

    def describe(self, tally: Tally) -> str:
        """Such as "said: 3, queries: 1,200"."""
        return f"said: {tally.total['said']:,}, queries: {tally.total['queries']:,}"


class TextSearchWorker(TurnWorker[Target, Rows]):
    """Holds the model, and searches for the targets of several shards side by side.

    Args:
        searching: what is searched for.
    """

    def __init__(self, searching: SearchingTexts) -> None:
        from policies.chat.loading import load_chat_model

        self.searching, self.config = searching, searching.wanted.config
        chat, answers = self.config.chat.on(self.config.device), Path(searching.answers)
        self._model: ChatModel = load_chat_model(absolute_address(self.config.model), chat, answers=answers)
        self._template = messages_of(self.config)
        self._success = judges_of_replies(self.config.success, chat, answers)[self.config.end]
        self.fitness = load_fitness(self.config.fitness, chat, answers)
        self.cost = load_fluency(self.config.fitness, chat)
        self._num_tokens = num_tokens(searching.wanted)
        attacker = self.config.attacker
        self._attacker = load_chat_model(absolute_address(attacker), chat, answers=answers) if attacker else None
        self.drop()

    def drop(self) -> None:
        self._held: dict[str, Shard[_TextSearch]] = {}

    def turn(self, joining: Sequence[Shard[Target]], seconds: float) -> TurnResult[Rows]:
        """Asks what all searches ask for next, and tells them."""
        for shard in joining:
            self._held[shard.name] = Shard(shard.name, shard.keys, tuple(_TextSearch(self, target) for target in shard.items))
        going = [search for shard in self._held.values() for search in shard.items if not search.finished]
        asked = [search.ask() for search in going]
        answers = iter(self.answer([chat for chats in asked for chat in chats]))
        for search, chats in zip(going, asked, strict=True):
            search.tell([next(answers) for _ in chats])
        ended = [name for name, shard in self._held.items() if all(search.finished for search in shard.items)]
        rows = {name: rows_apart(_rows, self._held.pop(name), self.searching.seed) for name in ended}
        return TurnResult(rows, {name: _stands(shard.items) for name, shard in self._held.items()})

    def answer(self, chats: Sequence[Chat], temperature: float = 0.0, seeds: Sequence[int] = ()) -> list[Answer]:
        """What the model answers."""
        from policies.chat.model import ChatDecoding

        decoding: ChatDecoding = ChatDecoding(max_tokens=self._num_tokens, temperature=temperature)
        return self._model.answer(chats, decoding=decoding, seeds=seeds)

    def chat(self, target: Target, words: Words) -> Chat:
        """The messages with an input in their slots, which share its words in order."""
        from policies.hugging_face_slots import filled_chat

        return filled_chat(self._template, target.prompt, self.slots(words))

    def slots(self, words: Words) -> list[str]:
        """What stands in each slot."""
        from policies.hugging_face_slots import num_slots

        num = num_slots(self._template)
        ends = [len(words) * slot // num for slot in range(num + 1)]
        return [" ".join(words[start:end]) for start, end in pairwise(ends)]

    def proposals(self, target: Target, seed: int) -> Proposals:
        """Who proposes inputs for a target."""
        from policies.chat.model import ChatDecoding

        settings, attacker = self.config.writing, self._attacker
        if attacker is None:
            words, start = self.searching.wanted.words, tuple(self.config.start.split())
            return Evolution(self.config.search, words, seed, start=start, allows=self.config.allows)
        decoding = ChatDecoding(max_tokens=settings.max_tokens, temperature=settings.temperature)

        def write(asked: Sequence[tuple[Sequence[Chat], int]]) -> list[WrittenLine]:
            most = settings.max_words
            return written_lines(
                attacker,
                asked,
                decoding,
                lambda each: read_words(each, most, self.config.allows),
                lambda problem: asked_for_words(problem, most),
            )

        shown = "\n\n".join(f"[{each.role}] {each.content}" for each in self.chat(target, ("[WORDS]",)))
        max_queries, wanted = self.config.search.max_queries, " ".join(target.words)
        return Writing(settings, max_queries, target=wanted, shown=shown, write=write, seed=seed)

    def judged(self, answer: Answer, target: Target) -> ReplyVerdict:
        """The verdict on an answer."""
        return self._success.verdict(answer.text, answer.ended, " ".join(target.words), target.prompt)


class _JudgedReply(NamedTuple):
    """What the model replied to an input, and what was judged of it."""

    answer: Answer
    verdict: ReplyVerdict
    rating: ReplyRating
    cost: float

    @property
    def fitness(self) -> float:
        """The higher the better."""
        return self.rating.value + self.verdict.success - self.cost


class _TextSearch:
    """The search for one target: first what the model replies to no input, then the search, beside it random inputs."""

    def __init__(self, worker: TextSearchWorker, target: Target) -> None:
        self.worker, self.target, self.seed = worker, target, worker.searching.seed(target.key)
        self.search = worker.proposals(target, self.seed)
        how = worker.config.search, worker.searching.wanted.words
        self.random = Evolution(*how, derive_seed(self.seed, "random"), allows=worker.config.allows, blind=True)
        self.told: dict[Proposals | None, dict[Words, _JudgedReply]] = {None: {}, self.search: {}, self.random: {}}
        self.asked: list[tuple[Proposals | None, list[Words]]] = []

    @property
    def finished(self) -> bool:
        """Whether nothing more is asked."""
        return self.search.finished and self.random.finished

    @property
    def num_told(self) -> int:
        """Replies that it was told of."""
        return sum(map(len, self.told.values()))

    def ask(self) -> list[Chat]:
        """What is asked next."""
        first: list[tuple[Proposals | None, list[Words]]] = [] if self.told[None] else [(None, [()])]
        self.asked = [*first, *((each, each.ask()) for each in (self.search, self.random) if not each.finished)]
        return [self.worker.chat(self.target, words) for _, asked in self.asked for words in asked]

    def tell(self, answers: Sequence[Answer]) -> None:
        """What came of it."""
        arriving = iter(answers)
        for who, asked in self.asked:
            replied = {words: next(arriving) for words in asked}
            wanted, texts = " ".join(self.target.words), [answer.text for answer in replied.values()]
            ratings = self.worker.fitness(texts, wanted, self.target.prompt) if who else [UNRATED] * len(texts)
            new = {
                words: _JudgedReply(
                    answer, self.worker.judged(answer, self.target), rating, self.worker.cost(" ".join(words)) if who else 0.0
                )
                for (words, answer), rating in zip(replied.items(), ratings, strict=True)
            }
            self.told[who] |= new
            if who is not None and new:
                heard = [ToldReply(each.fitness, each.answer.text) for each in new.values()]
                who.tell(heard, success=any(each.verdict.success for each in new.values()))

    def row(self) -> dict[str, Any]:
        """The row of the target; drawn replies are to the fittest input."""
        if not self.search.members:
            fix = "name another --attacker, or more words by --set writing.max_words"
            raise ModelError("the attacker wrote no input that could be tried", where=self.worker.config.attacker, fix=fix)
        settings, found, drawn_blind = self.worker.config.success, self.told[self.search], self.told[self.random]
        best = max(found, key=lambda words: (found[words].verdict.success, found[words].fitness))
        judged_replies = [each for told in self.told.values() for each in told.values()]
        verdicts = [judgement for each in judged_replies for judgement in (each.verdict, each.rating)]
        kept = found[best]
        seeds = [derive_seed(self.seed, "sample", number) for number in range(settings.samples)]
        chats = [self.worker.chat(self.target, best)] * len(seeds)
        answers = self.worker.answer(chats, settings.temperature, seeds) if seeds else []
        drawn = [self.worker.judged(answer, self.target) for answer in answers]
        judged = verdict_columns(kept.verdict, drawn)
        judged["judge_answers"] = sum(each.answers for each in (*verdicts, *drawn))
        judged["judge_unparsable"] = sum(not each.parsed for each in (*verdicts, *drawn))
        return ok_row(self.target.key, self.seed) | {
            "prompt": self.target.prompt,
            "target": " ".join(self.target.words),
            "trigger": " ".join(best),
            "typed": self.worker.slots(best),
            "fitness": kept.fitness,
            "fitness_by_generation": list(self.search.best_by_generation),
            "queries": len(self.told[None]) + len(found) + len(drawn),
            "reply": kept.answer.text,
            "ended": kept.answer.ended,
            "empty_verified": self.told[None][()].verdict.success,
            "random_verified": any(each.verdict.success for each in drawn_blind.values()),
            "random_fitness": self.random.best.fitness,
            "random_queries": len(drawn_blind),
            "attacker_answers": self.search.num_answers if isinstance(self.search, Writing) else 0,
            **judged,
        }


def _rows(shard: Shard[_TextSearch]) -> list[dict[str, Any]]:
    return [search.row() for search in shard.items]


def _stands(searches: Sequence[_TextSearch]) -> UnderWay:
    """How far searches are: their queries of those that search and random inputs may ask for."""
    told = [search.num_told for search in searches]
    most = 1 + 2 * searches[0].search.max_queries
    return UnderWay(sum(told) / most, Counter(queries=sum(told)))


def evolution() -> TextSearchConfig:
    """16 inputs of 8 words, 200 replies for each of 20 targets."""
    return TextSearchConfig()


def quick() -> TextSearchConfig:
    """A first look: 5 targets, 40 replies for each."""
    return TextSearchConfig(limit=5, search=EvolutionSettings(population=8, max_queries=40))


class SearchText(Job[TextSearchConfig, WantedTexts, WantedTexts]):
    """`parley search text`."""

    words = ("search", "text")
    run_name = "search-text"
    config = TextSearchConfig
    presets = {"evolution": evolution, "quick": quick}
    schema = TEXT_TRIGGERS
    legend = TEXT_METRICS
    files = (TABLE_FILE, SUMMARY, FILE, WORDS, "rows")
    resume_safe = RESUME_SAFE
    outcomes = MODERATED

    def prepare(self, config: TextSearchConfig, path: Path, reporter: Reporter) -> WantedTexts:
        """The targets and words; that the model is there."""
        from policies.chat.loading import load_chat_model

        if not config.model:
            fix = "--model openai:URL#MODEL, hf:FOLDER, gguf:FILE, path/file.py:Name, or a run of a response model"
            raise ConfigError("there is no model to search", where="--model", fix=fix)
        config.require_device()
        messages_of(config)
        targets = kept_targets(path) or _targets(config)
        words = tuple(word for word in input_words(path, config.words, targets) if config.allows((word,)))
        if not words:
            fix = "forbid less, or name other words"
            got = f"forbidden {config.forbidden!r}, alphabet {config.alphabet!r}"
            raise ConfigError("no word may stand in an input", got=got, fix=fix)
        judges_of_replies(config.success, config.chat.on("cpu"), None)
        load_fitness(config.fitness, config.chat.on("cpu"))
        load_fluency(config.fitness, config.chat.on("cpu"))
        for address in filter(None, (config.model, config.attacker)):
            load_chat_model(address, config.chat.on("cpu"))
        return WantedTexts(config, targets, words)

    def work(self, run: RunFolder, prepared: WantedTexts, reporter: Reporter) -> WantedTexts:
        save_targets(prepared.targets, run.path)
        save_words(prepared.words, run.path)
        reporter.say(str(text_composition(prepared.config)))
        searching = SearchingTexts(prepared, str((run.path / ANSWERS_FOLDER).absolute()))
        items = {target.key: target for target in prepared.targets.targets}
        work_off(run, searching, items, prepared.config, reporter, f"searching for {prepared.targets.name} targets by replies")
        return prepared

    def measure(self, run: RunFolder, found: WantedTexts) -> Summary:
        config = found.config
        return Summary(
            f"search by replies for {found.targets.name} targets on {config.model}",
            f"{len(found.targets.targets):,} targets, at most {config.search.max_queries:,} replies each, "
            f"{f'written by {config.attacker}' if config.attacker else f'{len(found.words):,} words'}, seed {config.seed}.",
            text_metrics(run.read_rows().to_pylist()),
            {ATTACK: text_composition(config).parts},
        )

    def models(self, config: TextSearchConfig) -> Mapping[str, str]:
        return {"model": config.model, **({"attacker": config.attacker} if config.attacker else {})}

    def num_rows(self, config: TextSearchConfig, path: Path) -> int:
        return num_targets(path)

    def num_items(self, config: TextSearchConfig) -> int:
        return len(_targets(config).targets)

    def tables(self, run: RunFolder) -> dict[str, TextTable]:
        metrics = run.metrics()
        return {"": text_table(metrics)} if metrics else {}

    def present(self, result: Result, run: RunFolder) -> Result:
        return replace(result, more=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _targets(config: TextSearchConfig) -> TargetList:
    """What the model is to say; any text can be said."""
    path = Path(config.targets)
    if config.targets == MAL:
        found = malicious(lambda words: ())
    elif not path.is_file():
        fix = "a file of pairs (CSV, JSONL) or of sentences, or mal"
        raise ConfigError("there is no such list of targets", where="--targets", got=config.targets, fix=fix)
    elif has_prompts(config.targets):
        target_file = Path(config.target_file) if config.target_file else None
        found = read_pairs(path, lambda prompt, target: None, target_file=target_file)
    else:
        found = from_file(path, lambda words: (), words_of=as_written)
    return limited(found.require_some(), config.limit, config.seed)


SEARCH_TEXT = SearchText()
