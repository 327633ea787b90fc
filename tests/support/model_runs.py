"""Runs of hypothesis's state machines, with the same settings everywhere."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

# Without the phase that explains: it takes minutes for a machine, and its steps tell enough.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


def run_machine(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=PHASES,
        ),
    )
