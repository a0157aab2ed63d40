"""What is perturbed: the examples of a corpus that are chosen, strategies that are ready, and what they make of the examples.

What a strategy draws for an example is named by the seed, the strategy and the example, so an audit reads the very contexts
that an evaluation of the same seed asks models about.
"""

from __future__ import annotations

from parley.engine.core.ray.sharding import Shard
from parley.engine.core.verbs.job import Reporter
from parley.engine.core.verbs.sample import drawn
from parley.engine.perturb import catalogue
from parley.engine.perturb.resources import Resources
from parley.engine.perturb.strategy import Strategy
from parley.engine.perturb.verbs.config import PerturbedConfig
from parley.envs.core.errors import ConfigError, DataError
from parley.envs.core.seeds import derive_seed
from parley.envs.corpora.pairs.compiled import PairCorpus, load_pairs
from parley.envs.corpora.pairs.contexts import examples
from parley.envs.corpora.pairs.turns import Example, Turns


def perturbation_seed(seed: int, strategy: str, key: str) -> int:
    """The seed of what a strategy does to an example, by the master seed, the strategy's name and the example's key."""
    return derive_seed(seed, "perturb", strategy, key)


def perturbed_contexts(strategy: Strategy, shard: Shard[Example], seed: int) -> list[Turns]:
    """What a strategy makes of the contexts of a shard, in their order; `seed` is the master seed."""
    contexts = [example.context for example in shard.items]
    return strategy.perturb(contexts, [perturbation_seed(seed, strategy.name, key) for key in shard.keys])


def tell_of_left_out(config: PerturbedConfig, reporter: Reporter) -> None:
    """Says which strategies of a group are left out, and which lexicon answers."""
    for name in config.left_out:
        reporter.say(f"{name} is left out: it needs a paraphraser (--set perturb.paraphraser=RUN of parley train paraphraser)")
    if config.perturb.lexicon == "built-in":
        from parley.engine.perturb.lexicon.built_in import ANNOUNCEMENT

        reporter.say(ANNOUNCEMENT)


def tried(config: PerturbedConfig, shared: Resources, example: Example) -> list[Strategy]:
    """The strategies, each tried once, because lexicons and networks open when they are first asked.

    Raises:
        ConfigError: two of them bear the same name, there is none of a name, or one needs a setting that is not given.
        DataError: what one leans on is not there.
    """
    strategies = catalogue.build(config.strategy_names, config.perturb, shared)
    names = [strategy.name for strategy in strategies]
    if len(set(names)) < len(names):
        raise ConfigError("two strategies bear the same name", got=", ".join(names), fix="rename yours, or name one of them")
    for strategy in strategies:
        perturbed_contexts(strategy, Shard("", (example.key,), (example,)), config.seed)
    return strategies


def chosen_examples(config: PerturbedConfig, name: str, turns: int, reporter: Reporter) -> tuple[list[Example], PairCorpus]:
    """The examples of a corpus, at least one, and the corpus with every word.

    Args:
        config: which of them, its data root found.
        name: of the corpus.
        turns: the most turns of a context.
        reporter: who is told when contexts are shorter.

    Raises:
        DataError: the corpus cannot be read, or has no example.
    """
    corpus = load_pairs(name, config.data_root, every_word=True)
    found = examples(corpus, config.split, turns, config.contexts.min_turns)
    if not len(found):
        raise DataError(
            f"the {config.split} split has no example with a context of {config.contexts.min_turns} turns or more",
            where=name,
            got=f"{len(corpus.splits[config.split]):,} pairs",
            fix="name another --split or --corpus, or lower contexts.min_turns",
        )
    chosen = drawn(found, config.limit, config.seed, name)
    if turns > 1 and all(len(example.context) == 1 for example in chosen):
        reporter.say(f"the dialogues of {name} have one turn of context; {turns} could be read")
    return chosen, corpus
