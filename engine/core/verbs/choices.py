"""Jobs that train a policy to choose among actions against a frozen model (RLlib), saving and resuming exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from parley.engine.core.runs.layout import SUMMARY
from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import ConfigT, Job, PreparedT, Reporter, Steps, Summary
from parley.engine.core.verbs.scalars import Scalars
from parley.engine.core.verbs.updates import built, make_updates
from parley.envs.core.storage.copies import CHECKPOINT

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from parley.engine.core.rllib.action_reinforce import ChoiceRunner, ChooserModule

UPDATE = "update"
"""Kind of the event of an update."""
START = "start"
"""Folder of the policy that learning begins with."""


class ChoiceJob(Job[ConfigT, PreparedT, Summary]):
    """A job that trains such a policy and stores it as `checkpoint`.

    Attributes:
        title: what is done, while it is.
        told: the figures of an update in words, by their names.
    """

    files = (CHECKPOINT, SUMMARY)
    resume_safe = ("data_root", "save_every")
    steps = Steps(UPDATE, "updates", lambda config: config["learning"]["updates"])
    title: ClassVar[str]
    told: ClassVar[str]

    def learn(
        self,
        run: RunFolder,
        config: Any,
        policy: nn.Module,
        save: Callable[[Path], None],
        make_env: Callable[[Any], Any],
        runner: type[ChoiceRunner],
        module: type[ChooserModule],
        reporter: Reporter,
    ) -> None:
        """Makes what is left of the updates; the policy has the learned weights then.

        Args:
            run: where it stands.
            config: with `learning`, `seed` and `save_every`.
            policy: as it begins.
            save: stores it in a folder.
            make_env: what is played, by the configuration; runners make it by themselves, because frozen models are not sent.
            runner: plays it.
            module: of the policy.
            reporter: who looks on.

        Raises:
            DivergenceError: a gradient is not finite.
        """
        from parley.engine.core.rllib import state
        from parley.engine.core.rllib.action_reinforce import ChoiceReinforceConfig

        start = run.path / START
        if not start.is_dir():
            save(start)
        settings = ChoiceReinforceConfig().choosing(
            learning=config.learning,
            make_env=partial(make_env, config),
            runner=runner,
            module=module,
            checkpoint=str(start),
            seed=config.seed,
        )

        def note(number: int, scalars: Scalars) -> str:
            last: Mapping[str, Any] = algorithm.last
            run.event(UPDATE, number=number, **last)
            scalars.add(number, last)
            return f"{self.told.format_map(last)}, reward {last['reward']:+.2f}"

        with built(settings) as algorithm:
            reporter.stage(self.title, config.learning.updates, "updates")
            make_updates(algorithm, run, config.learning.updates, config.save_every, reporter, note)
            policy.load_state_dict(state.learned_weights(algorithm))
