"""The job behind `parley data get nltk`: the parts of NLTK's data that perturbations lean on."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass

from parley.engine.core.verbs.job import Reporter
from parley.engine.perturb.lexicon.nltk_lexicon import FOLDERS, missing_folders
from parley.envs.core.errors import DataError

NLTK = "nltk"
"""What is said in the place of a corpus."""
_OBTAIN = "https://www.nltk.org/nltk_data"


@dataclass(frozen=True, kw_only=True)
class LexicalDelivery:
    """What `parley data get nltk` did."""

    name: str
    where: str
    """NLTK's data folder that missing packages are put into: the first of NLTK_DATA, else NLTK's own choice."""
    packages: dict[str, str]
    """What became of each package: "kept" or "downloaded"."""


def get_nltk(reporter: Reporter) -> LexicalDelivery:
    """Downloads what NLTK's data lack, with NLTK's own downloader.

    Raises:
        DataError: a package cannot be fetched; says what to put where.
    """
    from nltk.downloader import Downloader

    downloader = Downloader()
    where = os.environ.get("NLTK_DATA", "").split(os.pathsep)[0] or downloader.default_download_dir()
    missing = missing_folders()
    reporter.stage(NLTK, len(missing), "packages")
    for folder in missing:
        try:
            downloader.download(
                folder.rpartition("/")[2], download_dir=where, quiet=True, raise_on_error=True, print_error_to=io.StringIO()
            )
        except (OSError, ValueError) as error:
            raise _by_hand(where, missing, str(error)) from None
        reporter.advance(1)
    left = missing_folders()
    if left:
        raise _by_hand(where, left, "the downloader left nothing that NLTK finds")
    return LexicalDelivery(
        name=NLTK, where=where, packages={folder: "downloaded" if folder in missing else "kept" for folder in FOLDERS}
    )


def _by_hand(where: str, folders: list[str], reason: str) -> DataError:
    return DataError(
        "NLTK's data cannot be downloaded",
        where=_OBTAIN,
        got=reason.strip().partition("\n")[0],
        fix=f"on a machine that can reach it, get these packages, and put their folders or zip files into {where}: "
        f"{', '.join(folders)}; or do without: --set perturb.lexicon=built-in",
    )
