"""Search by replies alone: `parley search text`, for chat models whose weights and likelihoods nobody sees.

Inputs of words evolve (`parley.engine.triggers.methods.evolution`), or an attacker model writes them and mends them from
replies (`parley.engine.triggers.methods.writing`), until the reply to one is a success. Each target is told beside what
the model replies to no input, and to as many random ones as the search may try, until one of these is a success. Answers and
words are kept in the run: a resumed run asks nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.stats.answers import is_no_reply
from parley.engine.core.stats.rows import finished
from parley.engine.core.stats.tables import TextTable
from parley.engine.core.verbs.job import ATTACK, Job, Reporter, Result, Summary
from parley.engine.core.verbs.sharded import RESUME_SAFE, work_off
from parley.engine.core.verbs.tables import TABLE_FILE
from parley.engine.triggers.fitness import load_fitness, load_fluency
from parley.engine.triggers.methods.evolution import EvolutionSettings
from parley.engine.triggers.metrics.hits import VERIFIED, unread_failure
from parley.engine.triggers.metrics.shown import ShownInput, shown_inputs
from parley.engine.triggers.metrics.successes import successful_reply
from parley.engine.triggers.metrics.text import TEXT_METRICS, text_metrics, text_table
from parley.engine.triggers.target_pairs import has_prompts, read_pairs
from parley.engine.triggers.targets import TargetList, from_file, malicious
from parley.engine.triggers.verbs.config import MAL
from parley.engine.triggers.verbs.input_words import WORDS, input_words, save_words
from parley.engine.triggers.verbs.rows import TEXT_TRIGGERS
from parley.engine.triggers.verbs.targets import FILE, as_written, kept_targets, limited, num_targets, save_targets
from parley.engine.triggers.verbs.text_config import TextSearchConfig, WantedTexts
from parley.engine.triggers.verbs.text_prompts import messages_of, text_composition
from parley.engine.triggers.verbs.text_worker import SearchingTexts
from parley.engine.triggers.verbs.verification import judges_of_replies
from parley.envs.core.errors import ConfigError
from parley.policies.chat.answers import ANSWERS_FOLDER
from parley.policies.chat.model import MODERATED


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
        if not metrics:
            return {}
        return {
            "": text_table(metrics, successful_reply(run.config["success"], end=run.config["end"])),
            **shown_inputs(_shown(run)),
        }

    def present(self, result: Result, run: RunFolder) -> Result:
        return replace(result, more=self.tables(run), failure=result.failure or unread_failure(result.metrics))


def _shown(run: RunFolder) -> Iterator[ShownInput]:
    """Yield the best input of each target."""
    for part in run.read_parts():
        for row in finished(part.to_pylist()):
            kind, merit = row["kind"] if is_no_reply(row) else "", -inf if row["fitness"] is None else row["fitness"]
            yield ShownInput(bool(row[VERIFIED]), row["prompt"], row["typed"], row["target"], row["reply"], kind, merit)


def _targets(config: TextSearchConfig) -> TargetList:
    """What the model is to say; any text can be said."""
    path = Path(config.targets)
    if config.targets == MAL:
        found = malicious(lambda words: ())
    elif not path.is_file():
        fix = "a file of pairs (CSV, TSV, JSON, JSON Lines, Parquet) or of sentences, or mal"
        raise ConfigError("there is no such list of targets", where="--targets", got=config.targets, fix=fix)
    elif has_prompts(config.targets):
        target_file = Path(config.target_file) if config.target_file else None
        found = read_pairs(path, lambda prompt, target: None, target_file=target_file)
    else:
        found = from_file(path, lambda words: (), words_of=as_written)
    return limited(found.require_some(), config.limit, config.seed)


SEARCH_TEXT = SearchText()
