"""The list of jobs and the jobs themselves: what is listed is what a job says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from parley.engine.core.runs.parts import BASE
from parley.engine.core.verbs.catalogue import ENTRIES, find
from parley.engine.core.verbs.job import Job
from parley.engine.core.verbs.trainings import Entry
from parley.envs.core.config import from_dict, to_dict


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "-".join(entry.words))
def test_a_job_is_what_it_is_listed_as(entry: Entry) -> None:
    job = entry.load()
    assert isinstance(job, Job)
    assert job.words == entry.words
    assert find(job.name) is entry
    assert set(BASE.names) <= set(job.schema.names)
    fields = set(job.config.__dataclass_fields__)
    assert set(job.resume_safe) <= fields, "settings that it has"
    for preset in job.presets.values():
        config = preset()
        assert type(config) is job.config
        assert from_dict(job.config, to_dict(config)) == config, "what a run folder keeps makes the same again"
        assert job.command(config, Path("runs", job.run_name)).startswith(f"parley {' '.join(job.words)}")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: "-".join(entry.words))
def test_what_changes_digits_is_not_free_to_change_on_resume(entry: Entry) -> None:
    assert not {"threads", "learner_gpus", "device"} & set(entry.load().resume_safe)
