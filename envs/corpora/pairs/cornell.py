"""Reader of the Cornell movie dialogues (Danescu-Niculescu-Mizil & Lee 2011) as two parallel files of lines.

Line n of `test.dec` answers line n of `test.enc`. Films are not told apart, so each pair belongs to the split that the hash of
its source names, 90 : 5 : 5: no source is in two of them. Pairs of which a side has no word are left out. The published files
are Windows-1252 text.
"""

from __future__ import annotations

from pathlib import Path

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import broken_rule, located, read_lines
from parley.envs.corpora.pairs.text import PairText, split_of
from parley.envs.corpora.pairs.tokens import tokenise

SOURCES, REPLIES = "test.enc", "test.dec"


def read_cornell(folder: Path) -> PairText:
    """Reads both files; where they differ in length, nothing is read, for nobody knows what answers what."""
    text, paths = PairText(), [folder / SOURCES, folder / REPLIES]
    sources, replies = map(read_lines, paths)
    if len(sources) != len(replies):
        got, fix = f"{len(sources):,} and {len(replies):,} lines", "get both files again"
        text.broken.append(DataError("the files are not parallel", where=folder, got=got, fix=fix))
        return text
    for number, lines in enumerate(zip(sources, replies, strict=True), 1):
        sides = []
        for path, line in zip(paths, lines, strict=True):
            try:
                sides.append(tokenise(line.encode("utf-8", "surrogateescape").decode("cp1252")))
            except UnicodeDecodeError:
                error = broken_rule("the file is Windows-1252 text", ascii(line))
                text.broken.append(located(error, str(path), number))
        if len(sides) == 2 and all(sides):
            source, reply = sides
            split = text.splits[split_of(" ".join(source))]
            split.link(split.add(source), split.add(reply))
    return text
