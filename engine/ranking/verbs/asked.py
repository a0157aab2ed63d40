"""The rankers of an evaluation or an attack: found by the driver, loaded by every worker.

Rankers travel as names: a checkpoint is read by whoever loads it, and a ranker of a user's own is a file of Python.
On a cluster both must lie under the same paths on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path

from parley.engine.core.verbs.weights import checkpoint_folder
from parley.engine.ranking.verbs.config import RankersConfig
from parley.envs.core.storage.uris import display_path, is_uri
from parley.envs.ranking.groups import Context
from parley.policies.chat.addresses import absolute_address, is_chat_address, short_address, weights_of
from parley.policies.chat.settings import DEFAULT, ChatModelSettings
from parley.policies.core.stored import CONFIG, reading
from parley.policies.ranking.ranker import Ranker
from parley.policies.ranking.rankers import LANGUAGE_MODEL, RESPONSE_MODEL, RESPONSE_ONLY, load_ranker, rankers

CONTROLS = ("constant", "longest", "shortest", "overlap")
"""What a ranker must beat."""
ADVERSARIAL = "adversarial"
"""Role in the provenance of models that were trained against rules."""
CONTROL = "control"
"""Role of those that were trained as long on clean pairs."""
_PREFIXES = (RESPONSE_MODEL, LANGUAGE_MODEL)


@dataclass(frozen=True)
class AskedRanker:
    """One ranker.

    Args:
        label: what metrics call it: short, without a full stop, of one ranker alone.
        name: as `load_ranker` knows it, absolute.
        is_control: whether it is there to be beaten.
        kind: of a checkpoint, such as "smn"; empty for others.
        against: rules that it was trained against.
        base: label of the ranker that this training, or its control, began with; empty where that is not asked or not known.
    """

    label: str
    name: str
    is_control: bool = False
    kind: str = ""
    against: tuple[str, ...] = ()
    base: str = ""


def asked_rankers(names: Sequence[str], *, controls: bool = False) -> tuple[AskedRanker, ...]:
    """The rankers that are named, then those to be beaten.

    Args:
        names: of rankers, each once.
        controls: whether `CONTROLS` stand beside, and each ranker without its context.
    """
    beaten = []
    if controls:
        beaten = [name for name in CONTROLS if name not in names]
        alone = [f"{RESPONSE_ONLY}{name}" for name in names if name not in CONTROLS and not name.startswith(RESPONSE_ONLY)]
        beaten += [name for name in alone if name not in names]
    labels = list(_labels([*names, *beaten]))
    # A training names its base as it was typed: a run, or the checkpoint in it.
    bases = {_checkpoint(name): label for name, label in zip(names, labels, strict=False)}
    found = [_asked(name, label, bases) for name, label in zip(names, labels, strict=False)]
    beside = zip(labels[len(names) :], beaten, strict=True)
    return (*found, *(AskedRanker(label, _absolute(name), is_control=True) for label, name in beside))


def _asked(name: str, label: str, bases: Mapping[Path | None, str]) -> AskedRanker:
    """A ranker with what its checkpoint, if it has one, says of itself."""
    folder = _checkpoint(name)
    if folder is None:
        return AskedRanker(label, _absolute(name))
    with reading(folder):
        stored = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        kind, about = str(stored["kind"]), stored["provenance"]
        role = about.get("role")
        against = tuple(map(str, about["against"])) if role == ADVERSARIAL else ()
        base = _checkpoint(str(about.get("base", ""))) if role in (ADVERSARIAL, CONTROL) else None
    return AskedRanker(label, _absolute(name), kind=kind, against=against, base="" if base is None else bases.get(base, ""))


def loaded(
    asked: Sequence[AskedRanker], contexts: Iterable[Context], chat: ChatModelSettings = DEFAULT, answers: Path | None = None
) -> dict[str, Ranker]:
    """The rankers by their labels; one without its context shares the other's model.

    Args:
        asked: which.
        contexts: of the training split, for those that are fitted.
        chat: where networks compute, and how a chat model is loaded or asked.
        answers: folder in which answers of chat models are kept; None keeps none.

    Raises:
        ConfigError: no ranker is called so, or a file of one's own makes none.
        CheckpointError: nothing is there, it is damaged, or models of its kind do not rank.
        DataError: there are no words to fit a ranker on.
    """
    from parley.policies.ranking.controls import ResponseOnly

    load = partial(load_ranker, contexts=contexts, chat=chat, answers=answers)
    whole = {each.name: load(each.name) for each in asked if not each.name.startswith(RESPONSE_ONLY)}
    found: dict[str, Ranker] = {}
    for each in asked:
        inner = each.name.removeprefix(RESPONSE_ONLY)
        if inner not in whole:
            whole[inner] = load(inner)
        found[each.label] = whole[inner] if inner == each.name else ResponseOnly(whole[inner])
    return found


def models_of(config: RankersConfig) -> Mapping[str, str]:
    """The rankers that are files or folders, and rules of a user's own, by what names them."""
    models = {f"model {name}": stored_name(name) for name in config.model_names}
    return models | {f"rule {name}": name for name in config.rule_names if ".py:" in name}


def _labels(names: Iterable[str]) -> Iterator[str]:
    """Labels, all different: a name whose label is taken has the first number behind it that makes it another."""
    taken: set[str] = set()
    for name in names:
        label = label_of(name)
        numbered = (f"{label}-{number}" for number in count(2))
        free = next(each for each in chain([label], numbered) if each not in taken)
        taken.add(free)
        yield free


def label_of(name: str) -> str:
    """Such as "smn" of "runs/smn/checkpoint"."""
    for prefix in (RESPONSE_ONLY, RESPONSE_MODEL, LANGUAGE_MODEL):
        if name.startswith(prefix):
            return f"{prefix}{label_of(name.removeprefix(prefix))}"
    if ".py:" in name:
        return name.rpartition(":")[2]
    if is_chat_address(name):
        return short_address(name)
    parts = [part for part in name.split("/") if part not in ("", "checkpoint")]
    return parts[-1].replace(".", "_") if parts else "model"


def stored_name(name: str) -> str:
    """What a ranker's name stands for on a disk or in storage, without what says how it ranks; nothing of a server."""
    for prefix in (RESPONSE_ONLY, *_PREFIXES):
        name = name.removeprefix(prefix)
    return weights_of(name)


def _absolute(name: str) -> str:
    """The name for workers, which may stand in other folders."""
    if is_chat_address(inner := name.removeprefix(RESPONSE_ONLY)):
        return f"{name.removesuffix(inner)}{absolute_address(inner)}"
    path = stored_name(name)
    prefix = name.removesuffix(path)
    file, _, part = path.rpartition(":") if ".py:" in path else (path, "", "")
    if path in rankers or is_uri(path) or not ("/" in file or Path(file).exists()):
        return name
    whole = display_path(Path(file).expanduser().absolute())
    return f"{prefix}{whole}:{part}" if part else f"{prefix}{whole}"


def _checkpoint(name: str) -> Path | None:
    """Where the checkpoint of a name lies; None for a ranker that has none."""
    if not name or name in rankers or ".py:" in name or is_chat_address(name) or name.startswith((RESPONSE_ONLY, *_PREFIXES)):
        return None
    folder = checkpoint_folder(name)
    return None if folder is None else folder.absolute()
