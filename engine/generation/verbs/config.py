"""Configurations and presets of generator trainings and their table, and measures on a held-out split. Torch-free.

A generator is measured by judges that its training never saw: AdverSuc and machine-vs-random on a held-out split. The judges
are linear, on unigrams (Li et al. 2017, section 4), fitted on these replies alone and cross-fitted by source, so that each
pair is judged by one that has not seen its source. A reply without a word is not judged: its length
reveals it, so it counts as recognised, and so does the reply beside it.

`PreparedReplies` holds the checked generator, discriminator and pairs of a training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from parley.engine.core.stats.statistics import has_word
from parley.engine.core.verbs.checkpoints import located, require_checkpoint
from parley.engine.core.verbs.supervised import require_splits
from parley.engine.generation import settings as settings_of_rewards
from parley.engine.generation.metrics.adversarial import (
    ADVERSUC,
    NUM_FOLDS,
    RANDOM,
    JudgedScenario,
    JudgedScores,
    against,
    assign_folds,
    by_source,
    random_replies,
    source_name,
)
from parley.engine.generation.metrics.trained import AT, DECODED, FORCED, FORCED_EARLY, FORCED_HALF, TRAINED
from parley.engine.generation.settings import Method, ReplyLearning, Reward, RewardSettings
from parley.envs.core.config import (
    Configuration,
    NonNegativeFloat,
    NonNegativeInt,
    NumItems,
    NumItemsOrAll,
    PositiveInt,
    shared,
)
from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import nearest
from parley.envs.core.seeds import derive_seed
from parley.envs.core.storage.copies import fetched_model
from parley.envs.corpora.pairs.compiled import PairSplit, RepliedPair, load_pairs
from parley.envs.corpora.pairs.turns import EOT
from parley.envs.corpora.pairs.vocabulary import PairVocabulary
from parley.envs.generation.game import PairsInWords, pairs_in_words
from parley.policies.core.responder import MAKERS, DecoderSettings, lacks_backward, with_backward
from parley.policies.core.settings import FitConfig
from parley.policies.generation.discriminator.settings import (
    DiscriminatorSizes,
    discriminator_fit,
    discriminator_released,
    discriminator_small,
)
from parley.policies.generation.judges.judge import CONTROLS
from parley.policies.seq2seq import settings
from parley.policies.seq2seq.settings import Seq2SeqSizes

if TYPE_CHECKING:
    from parley.engine.generation.rl.reply_modules import ReplyWorld
    from parley.policies.generation.discriminator.batches import Discriminator
    from parley.policies.seq2seq.model import Seq2Seq


NUM_SHOWN = 8
REWARDS_OF_WORDS = "rewards of words"
"""Kind of the event that holds them."""


def word_rewards(
    settings: RewardSettings, generator: Seq2Seq, discriminator: Discriminator, pairs: PairSplit, max_words: int, seed: int
) -> list[dict[str, Any]]:
    """Draw replies to the first contexts of a split, with the rewards of their words by REINFORCE and REGS.

    Args:
        settings: whose method, of REGS, is shown; Monte Carlo with REINFORCE.
        generator: in evaluation mode.
        discriminator: the same.
        pairs: of contexts.
        max_words: words of a reply at most.
        seed: of draws.

    Returns:
        Of each `context` and `reply`, which is words, and `rewards` by method, a number for each word.
    """
    from parley.engine.generation.rewards.rewards import reply_actions, rewards
    from parley.policies.generation.discriminator.batches import context_batch
    from parley.policies.seq2seq.decoding import read, sample

    shown = pairs.first(NUM_SHOWN)
    sources = [shown.utterances[source] for source in shown.pairs[:, 0].tolist()]
    seeds = [derive_seed(seed, REWARDS_OF_WORDS, row) for row in range(len(sources))]
    actions = reply_actions(sample(generator, sources, seeds), max_words)
    contexts = discriminator.read(context_batch(sources, discriminator.vocabulary, discriminator.sizes))
    regs: Method = "regs-mc" if settings.method == "reinforce" else settings.method
    methods: tuple[Method, ...] = ("reinforce", regs)
    earned: dict[str, Sequence[Sequence[float]]] = {}
    for method in methods:
        how, memory = replace(settings, method=method), read(generator, sources)
        earned[method] = rewards(how, generator, memory, discriminator, contexts, actions, seeds, max_words).tolist()
    words = generator.vocabulary
    return [
        {
            "context": " ".join(words.decode(sources[row])),
            "reply": [words.words[word] for word in actions.words_BT[row, :length].tolist()],
            "rewards": {method: [round(value, 4) for value in rows[row][:length]] for method, rows in earned.items()},
        }
        for row, length in enumerate(actions.num_actions_B.tolist())
    ]


_JUDGE = "svm-unigram"


class HeldOut:
    """The contexts of a split, answered and judged.

    Args:
        pairs: contexts and recorded replies.
        vocabulary: of both.
        decoder: answers.
        max_words: of an answer at most, as of the recorded replies; longer ones are cut, as in training.
        seed: of draws, folds and judges; training knows none of these streams.
    """

    def __init__(
        self, pairs: PairSplit, vocabulary: PairVocabulary, decoder: DecoderSettings, max_words: int, seed: int
    ) -> None:
        self._decoder, self._max_words, self._seed, self._words = decoder, max_words, seed, vocabulary
        self._sources = [pairs.utterances[source] for source in pairs.pairs[:, 0].tolist()]
        self.recorded = [pairs.utterances[reply] for reply in pairs.pairs[:, 1].tolist()]
        """Word ids of the recorded replies."""
        self.source_names = [source_name(pair) for pair in self._pairs(self.recorded)]
        """The source of each context."""

    def replies(self, generator: Seq2Seq) -> list[list[int]]:
        """Return the replies of a generator, word ids without `</s>`."""
        from parley.policies.seq2seq.decoding import ReplyDecoder

        seeds = [derive_seed(self._seed, "held-out reply", row) for row in range(len(self._sources))]
        return [reply[: self._max_words] for reply in ReplyDecoder(generator, self._decoder)(self._sources, seeds)]

    def judged(self, replies: Sequence[Sequence[int]]) -> dict[str, JudgedScores]:
        """Return the scores of the judges, over all folds.

        Returns:
            `ADVERSUC`, of recorded replies, the first side, and those; `RANDOM`, of those, the first side, and recorded
            replies to other contexts.
        """
        recorded, answers = self._pairs(self.recorded), self._pairs(replies)
        human = by_source(recorded, self._seed, len(replies))
        machine = by_source([pair for pair in answers if has_word(pair.reply)], self._seed, len(replies))
        silent = [source_name(pair) for pair in answers if not has_word(pair.reply)]
        folds = assign_folds([human], human, NUM_FOLDS, self._seed)
        randoms = random_replies(machine, human, folds, self._seed)
        scenarios = against(ADVERSUC, human, machine, folds), against(RANDOM, machine, randoms, folds)
        return {scenario.name: self._scores(scenario).with_judged_right(silent) for scenario in scenarios}

    def _scores(self, scenario: JudgedScenario) -> JudgedScores:
        from parley.policies.generation.judges.judge import JudgeSettings, scores_by
        from parley.policies.generation.judges.prompted import judge_maker

        pairs, labels = [sided.pair for sided in scenario.pairs], np.array([sided.label for sided in scenario.pairs])
        scores, make = np.zeros(len(pairs)), judge_maker(_JUDGE, JudgeSettings())
        for fold in range(NUM_FOLDS):
            is_judged = scenario.folds == fold
            if is_judged.all() or not is_judged.any():
                # Nothing to learn from, and the pairs stay undecided, or nothing to judge.
                continue
            judge = make()
            seed = derive_seed(self._seed, "held-out judge", fold)
            judge.fit([pairs[row] for row in np.flatnonzero(~is_judged)], labels[~is_judged], seed)
            scores[is_judged] = scores_by(judge, [pairs[row] for row in np.flatnonzero(is_judged)])
        return JudgedScores(np.array([pair.source for pair in scenario.pairs]), labels, scores, NUM_FOLDS)

    def _pairs(self, replies: Sequence[Sequence[int] | np.ndarray]) -> list[RepliedPair]:
        pairs = []
        for source, reply in zip(self._sources, replies, strict=True):
            turns: list[list[str]] = [[]]
            for word in self._words.decode(source):
                if word == EOT:
                    turns.append([])
                else:
                    turns[-1].append(word)
            pairs.append(RepliedPair(tuple(map(tuple, turns)), tuple(self._words.decode(reply))))
        return pairs


@dataclass(frozen=True, kw_only=True)
class Watch(Configuration):
    """Limits beyond which a training has gone wrong."""

    topic: ClassVar[str] = "minmax replies"

    patience: PositiveInt = 50
    """Steps of a kind in a row for which a figure has to be out of its bounds."""
    stop: bool = False
    """Whether a training ends there, naming the last good checkpoint; otherwise that is an event of the run."""

    saturated: ClassVar[float] = 0.98
    """Accuracy of the discriminator above which it teaches nothing."""
    helpless: ClassVar[float] = 0.52
    """Accuracy of the discriminator below which its rewards are noise."""
    min_distinct: ClassVar[float] = 0.01
    """Different words of a step's replies, as a share of all their words, below which the generator has collapsed."""
    max_commonest: ClassVar[float] = 0.5
    """Share of a step's replies that are the commonest one, above which it has collapsed."""
    min_words: ClassVar[float] = 1.5
    """Words of a reply in the mean, below which it has collapsed."""
    min_nats: ClassVar[float] = 0.1
    """Nats of a word that it says (an estimate of its entropy), below which it has collapsed."""
    min_advantage: ClassVar[float] = 1e-3
    """Size of reward less baseline in the mean, below which rewards tell the generator nothing.

    These limits are far from any training that goes well; an alarm ends none unless `stop` is set."""


@dataclass(frozen=True, kw_only=True)
class ReplyTrainingConfig(RewardSettings):
    """On what a generator and a discriminator learn from each other, how long, and what is trained first."""

    corpus: str = "helpdesk"
    """Registered corpus of pairs (parley data list), a source<TAB>reply file or folder, or path/file.py:NAME."""
    min_reply: PositiveInt = 5
    """Words that a recorded reply has at least (published: 5); the generator's limit is the most."""
    limit: NonNegativeInt = 0
    """Pairs of each split at most, the first ones; 0 for all."""
    check_every: PositiveInt = 50
    """Rounds between measurements on the validation split, which pick the checkpoint."""
    checked: NumItems = 500
    """Validation and test contexts that are answered in a measurement, the first ones of the split."""
    decoder: str = "greedy"
    """How they are answered."""
    discriminator_decoder: str = "beam:7"
    """How half of the replies are found that a discriminator is trained on first; the other half is sampled. Published: mmi,
    which re-ranks by --backward."""
    backward: str = ""
    """Run of train seq2seq --backward, by which mmi re-ranks; when empty and needed one is trained first."""
    keep: Literal["best", "likelihood", "last"] = "best"
    """Which generator is stored: of those measured on the validation split, the start among them, that of highest AdverSuc or
    of least nats a recorded word; or the last."""
    save_every: PositiveInt = 10
    """Updates between saved training states."""
    address: str = ""
    """Address of a Ray cluster; a local one when empty."""
    data_root: Path | None = None
    """Where corpora lie; PARLEY_DATA or the user cache folder when not given."""
    seed: NonNegativeInt = 1
    """Master seed."""
    threads: PositiveInt = 1
    """CPU threads that this process computes with; env runners have one each, so that with more the last digits may differ."""
    learning: ReplyLearning = field(default_factory=ReplyLearning)
    """Order and amounts of steps."""
    watch: Watch = field(default_factory=Watch)
    """When a training has gone wrong."""
    vocabulary: int | None = None
    """Entries of the vocabulary of generators and language models that are trained first; the corpus' own number when not
    given."""
    sizes: Seq2SeqSizes = field(default_factory=Seq2SeqSizes)
    """Of a generator that is trained first."""
    fit: FitConfig = field(default_factory=settings.fast)
    """The recipe of that generator."""
    discriminator_sizes: DiscriminatorSizes = field(default_factory=discriminator_small)
    """Of a discriminator that is trained first."""
    discriminator_fit: FitConfig = field(default_factory=discriminator_fit)
    """The recipe of that discriminator."""

    @property
    def longest(self) -> int:
        """Return the most words of a recorded reply, for a generator of these sizes."""
        return self.max_words or self.sizes.max_reply - 1


NO_LIMIT = 1e6
"""Nats per word that no generator loses."""


@dataclass(frozen=True, kw_only=True)
class MinMaxRepliesConfig(ReplyTrainingConfig):
    """The generator, the discriminator, the reward and the length of an adversarial training."""

    added: ClassVar[Mapping[str, Any]] = {"control": False, "plain_loss": NO_LIMIT, "num_final_adversaries": 0}

    start: str = ""
    """Run or checkpoint of the generator (parley train seq2seq); when empty one is trained first."""
    discriminator: str = ""
    """Run or checkpoint of the discriminator (parley train discriminator); when empty one is trained first."""
    reward: Reward = "discriminator"
    """The reward of the generator. Controls: constant, 1 for every word; shuffled, the discriminator's rewards of another
    example of the step; length, words of the reply as a share of the limit."""
    control: bool = False
    """Also train the start as long with constant rewards, and measure it as the result: what training alone explains."""
    plain_loss: NonNegativeFloat = 1.0
    """How much worse than the start the result may foretell recorded replies, in nats per word of the validation split."""
    num_final_adversaries: NonNegativeInt = 1
    """Fresh discriminators that are trained against the result, and as many against the control, at last."""
    env_runners: NonNegativeInt = 0
    """Processes that say replies and reward them; 0: this one does. They change nothing of what is learned."""

    @property
    def rewards(self) -> RewardSettings:
        """Return the rewards of words."""
        return RewardSettings(**{setting.name: getattr(self, setting.name) for setting in fields(RewardSettings)})

    @property
    def steps(self) -> ReplyLearning:
        """Return the steps of a round, without teacher forcing if it is off."""
        return replace(self.learning, teacher_steps=0) if self.teacher_forcing == "none" else self.learning


def helpdesk() -> MinMaxRepliesConfig:
    """Ten rounds on the built-in help desk, offline, with a small generator and discriminator that are trained first."""
    return MinMaxRepliesConfig(
        num_rollouts=2,
        learning=ReplyLearning(rounds=10, discriminator_steps=2, examples_per_step=32, generator_rate=1e-3),
        check_every=5,
        checked=100,
        sizes=Seq2SeqSizes(embed=64, hidden=96, turns=2, max_source=40),
        fit=replace(settings.demo(), max_epochs=10),
        discriminator_sizes=DiscriminatorSizes(embed=32, hidden=48),
        discriminator_fit=FitConfig(batch_size=64, max_epochs=2, decay_epochs=0, precision="float32"),
    )


def released() -> MinMaxRepliesConfig:
    """Train as the authors' code, on Ubuntu: SGD, a linear critic, replies of 40 words; --start is optional.

    Released: Monte Carlo rewards alone, their options (`engine/generation/settings.py`), the rates, widths, dropout of
    .2, 64 contexts a step, 25,000 words, 50 words of source, and that a round is five discriminator steps, a generator step and
    teacher forcing on its contexts. The generator steps at a rate of 1 in sums over words divided by the number of replies,
    its gradient's norm 5 at most; `policies/seq2seq/settings.py:li2017` says why that is 10 and .5 here.

    Not known: how many rounds they trained for and which state they kept (it goes on until it is killed), how the replies
    were decoded that the discriminator is trained on first (the paper's way here), and the corpus, of which 768 triples
    are released.

    Otherwise here: one largest norm of gradients, the generator's (released: 5 for the discriminator); a context's turns are
    utterances (released: one utterance); no dropout where the generator's own replies are scored.
    """
    authors = replace(li2017(), **vars(settings_of_rewards.released()))
    rates = ReplyLearning(optimiser="sgd", generator_rate=10.0, discriminator_rate=0.01, critic_rate=5e-4, clip=0.5)
    return replace(
        authors,
        learning=rates,
        vocabulary=25_000,
        sizes=replace(settings.released_replier(), max_reply=41),
        fit=settings.li2017(),
        discriminator_sizes=DiscriminatorSizes(),
        discriminator_fit=discriminator_released(),
    )


def li2017() -> MinMaxRepliesConfig:
    """Train a thousand rounds of five discriminator steps on Ubuntu, 64 examples a step; name --start and --discriminator."""
    return MinMaxRepliesConfig(
        corpus="ubuntu_irc", discriminator_decoder="mmi", sizes=settings.replier(), fit=settings.small_batches()
    )


BACKWARD = "backward"
"""Folder of the backward model that is trained first where none is named."""


def require_decoders(config: ReplyTrainingConfig) -> None:
    """Check both decoders, and the models that they name, before anything is trained.

    Args:
        config: its sizes are those of the generator.

    Raises:
        ConfigError: no decoder is called so, or a backward model predicts contexts of other turns than the generator reads.
        CheckpointError: a model is not there; a backward model predicts replies.
    """
    if config.backward:
        require_checkpoint(config.backward, "--backward", MAKERS[BACKWARD])
    decoders = [located(DecoderSettings.parse(config.decoder))]
    for_discriminator = DecoderSettings.parse(with_backward(config.discriminator_decoder, config.backward or BACKWARD))
    if config.backward or not lacks_backward(config.discriminator_decoder):
        decoders.append(located(for_discriminator))
    for name in dict.fromkeys(filter(None, (config.backward, *(decoder.backward for decoder in decoders)))):
        from parley.policies.seq2seq.decoding import require_turns
        from parley.policies.seq2seq.scoring import load_backward

        require_turns(config.sizes.turns, load_backward(fetched_model(name)), name)


def recorded_pairs(config: MinMaxRepliesConfig, generator: Seq2Seq) -> PairsInWords:
    """Return the splits of the corpus in the words of a generator, and a note on what is left out."""
    corpus = load_pairs(config.corpus, config.data_root, every_word=True).first(config.limit)
    sizes = generator.sizes
    lengths = {"min_reply": config.min_reply, "max_reply": config.max_words or sizes.max_reply - 1}
    pairs = pairs_in_words(corpus, generator.vocabulary, turns=sizes.turns, **lengths)
    require_splits(corpus.name, pairs.splits)
    return pairs


def training_world(config: MinMaxRepliesConfig, generator: str) -> ReplyWorld:
    """Return the data of a training; runners make it by themselves."""
    from parley.engine.generation.rl.reply_modules import ReplyWorld
    from parley.policies.core.response_weights import ResponseWeights, stop_ids
    from parley.policies.seq2seq.scoring import load_seq2seq

    model = load_seq2seq(Path(generator))
    pairs, words = recorded_pairs(config, model).splits["train"], model.vocabulary
    replies = (pairs.utterances[reply] for reply in pairs.pairs[:, 1].tolist())
    weights = ResponseWeights.of(replies, len(words), stop_ids(words))
    return ReplyWorld(pairs, words, config.max_words or model.sizes.max_reply - 1, weights)


@dataclass(frozen=True)
class PreparedReplies:
    """The checked generator, discriminator and pairs of a training.

    Args:
        config: of the training.
        generator: folder of its checkpoint.
        discriminator: folder of its checkpoint.
        model: the generator as it begins.
        pairs: by split, in its words.
        note: what is left out of them, in sentences.
    """

    config: MinMaxRepliesConfig
    generator: str
    discriminator: str
    model: Seq2Seq
    pairs: Mapping[str, PairSplit]
    note: str


def prepare_replies(config: MinMaxRepliesConfig, generator: str, discriminator: str) -> PreparedReplies:
    """Open the generator, the discriminator and the pairs of a training.

    Args:
        config: of the training.
        generator: folder of a checkpoint.
        discriminator: folder of a checkpoint; empty for one that is yet to be trained.

    Raises:
        CheckpointError: one is damaged, of another kind, or does not know beginnings, which the method asks it about.
        ConfigError: their words or lengths do not fit.
        DataError: the corpus cannot be read, or a split is empty.
    """
    from parley.engine.generation.rewards.rewards import limit
    from parley.policies.generation.discriminator.batches import load_discriminator, require_prefixes
    from parley.policies.seq2seq.scoring import load_seq2seq

    model = load_seq2seq(Path(generator))
    if discriminator:
        if config.method == "regs-partial":
            require_prefixes(Path(discriminator))
        limit(config.rewards, model, load_discriminator(Path(discriminator)))
    return PreparedReplies(config, generator, discriminator, model, *recorded_pairs(config, model))


TEMPERATURES = (0.4, 0.6, 0.8, 1.2)
DECODERS = {
    "greedy": "greedy",
    "beam": "beam:7",
    "diverse": "diverse:7",
    "beam-repeat": "beam:7,repeat=2",
    "sample": "sample",
    "blind": "blind",
}
"""How the start replies in rows that need no other model. That a content word costs two nats when it is said again is ours.

# Paper: siblings and repeated words are penalised wherever replies are decoded (section 3.3). Ours: in rows of their own."""


@dataclass(frozen=True, kw_only=True)
class TrainedTableConfig(ReplyTrainingConfig):
    """From which generators trainings and controls start, and how they are compared."""

    start: str = ""
    """Runs or checkpoints of generators (parley train seq2seq), separated by commas; training i starts from the i-th, in turn.
    When empty one is trained first."""
    rows: str = ",".join([*DECODED, *TRAINED, *(f"{AT}{temperature:g}" for temperature in TEMPERATURES)])
    """Rows to measure, separated by commas; sample-T draws the start's replies at temperature T. Earlier rows stay."""
    num_trainings: PositiveInt = 1
    """Trainings of each row, from different seeds; as many as there are starts at least."""
    contexts: NumItemsOrAll = 1_000
    """Test contexts that are answered in each row, the seed's choice; 0 for all."""
    judges: str = "svm-unigram"
    """Judges separated by commas, as in parley evaluate adversarial; the tables show the first one."""
    lm: str = ""
    """Language model (parley train lm) of the row mmi-antilm; when empty one is trained first."""
    judge_lm: str = ""
    """Language model of the perplexity and the vectors; when empty another one is trained first, from another seed."""
    published: Literal["none", "li2017"] = "none"
    """Figures to show beside the measured ones."""
    workers: NonNegativeInt = 0
    """Ray actors that reply and judge; 0 does so in this process."""
    trainers: NonNegativeInt = 0
    """Ray actors that train rows side by side, on this machine; with 0 rows are trained one after another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.row_names:
            _require_row(name)
        if not self.judge_names:
            raise ConfigError("--judges names nothing", got=repr(self.judges), fix="such as --judges svm-unigram")

    @property
    def row_names(self) -> tuple[str, ...]:
        """Return the rows, each once."""
        return tuple(dict.fromkeys(name for part in self.rows.split(",") if (name := part.strip())))

    @property
    def starts(self) -> tuple[str, ...]:
        """Return the names of the generators."""
        return tuple(name for part in self.start.split(",") if (name := part.strip()))

    @property
    def judge_names(self) -> tuple[str, ...]:
        """Return the judges, without those that are always there."""
        names = (name for part in self.judges.split(",") if (name := part.strip()))
        return tuple(dict.fromkeys(name for name in names if name not in CONTROLS))

    @property
    def trainings(self) -> int:
        """Return the number of trainings of each row."""
        return max(self.num_trainings, len(self.starts))

    def training(self, row: str, number: int) -> dict[str, Any]:
        """Return the settings of a row's training, except for the models that it starts from.

        Rows that ask no discriminator leave it as it is, which changes nothing of theirs and saves its steps.

        Args:
            row: one of `TRAINED`.
            number: of the training, from 1.
        """
        settings_of_row = shared(self, ReplyTrainingConfig) | {"seed": self.seed + number - 1}
        # Its generator and its discriminator are there.
        done = ("vocabulary", "discriminator_decoder", "backward")
        settings_of_row = {name: value for name, value in settings_of_row.items() if name not in done}
        learning = self.learning
        if row in (FORCED, FORCED_HALF, FORCED_EARLY):
            # A half has the likelihood steps of a training with rewards, the others have its updates.
            likelihood = learning.teacher_steps * (self.teacher_forcing != "none")
            steps = max(likelihood, 1) if row == FORCED_HALF else learning.generator_steps + likelihood
            learning = replace(learning, discriminator_steps=0, generator_steps=0, teacher_steps=steps)
            kept = {"keep": "likelihood"} if row == FORCED_EARLY else {}
            return settings_of_row | {"learning": learning, "teacher_forcing": "mle", **kept}
        if row in ("constant", "length"):
            return settings_of_row | {"learning": replace(learning, discriminator_steps=0), "reward": row}
        if row == "frozen":
            return settings_of_row | {"learning": replace(learning, discriminator_steps=0)}
        return settings_of_row | ({"reward": row} if row == "shuffled" else {"method": row})


def _require_row(name: str) -> None:
    """Check that a row of this name exists."""
    if name in DECODED or name in TRAINED:
        return
    if name.startswith(AT):
        DecoderSettings.parse(f"sample:{name.removeprefix(AT)}", where=f"--rows {name}:")
        return
    names = [*DECODED, *TRAINED, f"{AT}T"]
    raise ConfigError(f"no row is called {name!r}{nearest(name, names)}", where="--rows", fix=f"rows: {','.join(names)}")


def helpdesk_table() -> TrainedTableConfig:
    """Ten rounds a row on the built-in help desk, with small models that are trained first; minutes, offline."""
    return TrainedTableConfig(**shared(helpdesk(), ReplyTrainingConfig) | {"keep": "last"}, contexts=200)


def li2017_table() -> TrainedTableConfig:
    """Three hundred rounds a row on Ubuntu, three trainings; name --start."""
    changed = {"learning": ReplyLearning(rounds=300), "keep": "last", "vocabulary": 10_000, "published": "li2017"}
    return TrainedTableConfig(**shared(li2017(), ReplyTrainingConfig) | changed, num_trainings=3)
