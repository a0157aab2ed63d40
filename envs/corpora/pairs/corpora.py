"""The corpora of pairs that Parley knows: what each is, its licence, its files and their reader."""

from __future__ import annotations

from pathlib import Path

from parley.envs.core.errors import ConfigError
from parley.envs.core.registry import Registry
from parley.envs.corpora.own_files import own_file
from parley.envs.corpora.pairs import helpdesk, tokens
from parley.envs.corpora.pairs.conversations import read_conversations
from parley.envs.corpora.pairs.cornell import REPLIES, SOURCES, read_cornell
from parley.envs.corpora.pairs.dailydialog import FILES, read_dailydialog_pairs
from parley.envs.corpora.pairs.helpdesk.dialogues import helpdesk_pairs
from parley.envs.corpora.pairs.sources import FilePairs, GeneratedPairs, PairSource
from parley.envs.corpora.pairs.subtitles import DICTIONARY, SAMPLES, SUFFIXES, read_opus, read_sample
from parley.envs.corpora.pairs.switchboard import read_switchboard
from parley.envs.corpora.pairs.tabbed import tabbed_pairs
from parley.envs.corpora.pairs.ubuntu import FOLDERS, LINKS, LOG, read_ubuntu
from parley.envs.corpora.records import KINDS
from parley.envs.corpora.sources import named_source

pair_corpora = Registry("pair corpus", "parley.pairs")


def find_pairs(name: str) -> PairSource:
    """The corpus of that name.

    Args:
        name: a registered name, `path/file.py:NAME`, or a path as `is_path` knows them, columns included.

    Raises:
        ConfigError: no such corpus, with the nearest name.
        DataError: the file cannot be read, or it is not known which of its columns hold what.
    """
    source: PairSource
    if is_path(name):
        return tabbed_pairs(own_file(name))
    try:
        source = named_source(pair_corpora, name, "read", "fingerprint", "vocabulary")
    except ConfigError as error:
        if ".py:" in name:
            raise
        raise ConfigError(error.what, fix=f"{error.fix}; {of_your_own(name)}") from None
    return source


def of_your_own(name: str) -> str:
    """What to name instead of a corpus that is not known: the folder that lies here by that name, or any file or folder."""
    if Path(name).is_dir():
        return f"or ./{name} for the folder that lies here"
    return "or a file of lines source<TAB>reply, a table with columns (FILE.csv#context=COLUMN,reply=COLUMN), or ./FOLDER"


def is_path(name: str) -> bool:
    """Whether a name is that of a file of pairs, or holds a `/` as that of a folder does (`./mine` for one that lies here)."""
    if ".py:" in name or name.endswith(".py"):
        return False
    path = own_file(name).path
    return "/" in name or path.suffix.lower() in KINDS or ("." in name and path.is_file())


pair_corpora.register("helpdesk", "scripted help-desk dialogues, generated")(
    GeneratedPairs(
        name="helpdesk",
        summary="dialogues of users and agents of a help desk, generated on this machine",
        licence="Apache-2.0, as Parley itself",
        vocabulary=1_000,
        generator=helpdesk_pairs,
        sources=(Path(tokens.__file__), *sorted(Path(helpdesk.__path__[0]).glob("*.py"))),
    )
)

pair_corpora.register("ubuntu_irc", "replies in #ubuntu, Kummerfeld et al. 2019")(
    FilePairs(
        name="ubuntu_irc",
        summary="173 logs of #ubuntu with annotated reply links (Kummerfeld et al. 2019), and replies to a named nick",
        licence="CC BY 4.0",
        obtain="github.com/jkkummerfeld/irc-disentanglement, folder data",
        vocabulary=30_000,
        wanted=tuple((f"{folder}/*{suffix}",) for folder in FOLDERS.values() for suffix in (LOG, LINKS)),
        reader=read_ubuntu,
    )
)

pair_corpora.register("ubuntu_dialogues", "conversations in #ubuntu, Kummerfeld et al. 2019")(
    FilePairs(
        name="ubuntu_dialogues",
        summary="conversations of the logs of ubuntu_irc, turn by turn (Kummerfeld et al. 2019)",
        licence="CC BY 4.0",
        obtain="github.com/jkkummerfeld/irc-disentanglement, folder data",
        vocabulary=20_000,
        wanted=tuple((f"{folder}/*{suffix}",) for folder in FOLDERS.values() for suffix in (LOG, LINKS)),
        reader=read_conversations,
        shares="ubuntu_irc",
    )
)

pair_corpora.register("switchboard", "turns of telephone calls, Jurafsky et al. 1997")(
    FilePairs(
        name="switchboard",
        summary="1,155 telephone calls, turn by turn (Switchboard with dialogue acts, Jurafsky et al. 1997)",
        licence="not stated for the text; the underlying calls are LDC97S62",
        obtain="github.com/NathanDuran/Switchboard-Corpus, folder swda_data",
        vocabulary=10_000,
        wanted=(("train/*.txt",), ("val/*.txt",), ("test/*.txt",)),
        reader=read_switchboard,
    )
)

pair_corpora.register("opensubtitles", "neighbouring lines of films, Lison & Tiedemann 2016")(
    FilePairs(
        name="opensubtitles",
        summary="neighbouring lines of films, one file a film or all in one (OpenSubtitles in OPUS, Lison & Tiedemann 2016)",
        licence="as OPUS states for the release you take",
        obtain="OPUS, corpus OpenSubtitles, monolingual or Moses files",
        vocabulary=30_000,
        wanted=(tuple(f"**/*{suffix}" for suffix in SUFFIXES),),
        reader=read_opus,
    )
)

pair_corpora.register("opensubtitles_sample", "256 pairs of film lines a split, Li et al. 2017")(
    FilePairs(
        name="opensubtitles_sample",
        summary="256 pairs of film lines a split, coded in word numbers (Li et al. 2017)",
        licence="MIT (the repository's)",
        obtain="github.com/jiweil/Neural-Dialogue-Generation, folder data",
        vocabulary=25_000,
        wanted=((DICTIONARY,), *((name,) for name in SAMPLES.values())),
        reader=read_sample,
    )
)

pair_corpora.register("cornell", "lines of films and replies, Danescu-Niculescu-Mizil & Lee 2011")(
    FilePairs(
        name="cornell",
        summary="30,000 pairs of film lines in two parallel files (Cornell, Danescu-Niculescu-Mizil & Lee 2011)",
        licence="none stated; the corpus is given for research",
        obtain="github.com/kswapd/tensorflow_chatbot, folder data",
        vocabulary=10_000,
        wanted=((SOURCES,), (REPLIES,)),
        reader=read_cornell,
        shares="cornell_test",
    )
)

pair_corpora.register("dailydialog", "contexts with five replies each, Sai et al. 2020")(
    FilePairs(
        name="dailydialog",
        summary="everyday dialogues with five replies that people wrote to each context (DailyDialog++, Sai et al. 2020)",
        licence="none stated",
        obtain="github.com/iitmnlp/DailyDialog-plusplus, folder dataset",
        vocabulary=10_000,
        wanted=tuple((name,) for name in FILES.values()),
        reader=read_dailydialog_pairs,
        shares="dailydialog_pp",
    )
)

pair_corpora.register("kdconv", "Chinese conversations, Zhou et al. 2020", "parley.envs.corpora.pairs.kdconv:KDCONV")
pair_corpora.register(
    "ptb_characters", "words spelled out, He & Glass 2018", "parley.envs.corpora.pairs.characters:PTB_CHARACTERS"
)
pair_corpora.register(
    "msr_paraphrases",
    "news sentences that mean the same, Dolan & Brockett 2005",
    "parley.envs.corpora.pairs.paraphrases:MSR_PARAPHRASES",
)
pair_corpora.register(
    "helpdesk_paraphrases",
    "help-desk phrases put in two ways, generated",
    "parley.envs.corpora.pairs.paraphrases:HELPDESK_PARAPHRASES",
)
