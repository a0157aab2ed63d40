"""What rules share: settings, the language, and the counts of words that IIW weighs by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from parley.engine.perturb.replies.settings import ReplySettings
from parley.engine.perturb.replies.term_counts import TermCounts
from parley.engine.perturb.resources import Resources
from parley.envs.core.errors import ConfigError
from parley.envs.ranking.groups import Context

if TYPE_CHECKING:
    from parley.engine.perturb.replies.language import ReplyLanguage

LanguageCode = Literal["en", "zh"]


@dataclass(frozen=True)
class RuleResources:
    """What rules share.

    Args:
        settings: the user's.
        shared: lexicon, corpus and data root, as strategies have them.
        code: of the language.
        contexts: the training contexts, the evaluated ones, or both, for IIW's weights; read once.
    """

    settings: ReplySettings
    shared: Resources
    code: LanguageCode = "en"
    contexts: Mapping[Literal["training", "evaluated"], Iterable[Context]] = field(default_factory=dict)

    @cached_property
    def language(self) -> ReplyLanguage:
        """The language; what it leans on is opened when it is first asked.

        Raises:
            DataError: NLTK's data are not there.
        """
        if self.code == "zh":
            from parley.engine.perturb.replies.chinese import Chinese

            return Chinese(self.shared.data_root)
        from parley.engine.perturb.replies.language import English

        return English(self.shared.lexicon, self.shared.is_usual)

    @cached_property
    def counts(self) -> TermCounts:
        """The counts of words in the contexts that the settings name.

        Raises:
            ConfigError: those contexts are not at hand.
        """
        which = self.settings.fitted_on
        if which not in self.contexts:
            given = next(iter(self.contexts), None)
            fix = "give RuleResources(contexts=...)" if given is None else f"--set replies.fitted_on={given}"
            raise ConfigError(
                f"IIW weighs words by the {which} contexts, which are not at hand", where="replies.fitted_on", fix=fix
            )
        return TermCounts.of(self.contexts[which])
