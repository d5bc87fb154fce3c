"""Options of a training schedule beside those of its estimator."""

import dataclasses

from pydirect import TrainingSchedule

SCHEDULE = {field.name for field in dataclasses.fields(TrainingSchedule)}


def scheduled(options):
    """Arguments of an estimator, of which those of its schedule are given by their own names."""
    own = {name: value for name, value in options.items() if name in SCHEDULE}
    return {name: value for name, value in options.items() if name not in SCHEDULE} | {
        "schedule": TrainingSchedule(**own)
    }
