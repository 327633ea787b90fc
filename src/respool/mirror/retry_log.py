"""What a mirror could not do and tries again: each said once, and once more when it has passed."""

from respool.cli.mirror_output import MirrorReport
from respool.model.operator_errors import OperatorError


class Troubles:
    def __init__(self, report: MirrorReport) -> None:
        self._report = report
        self._why: dict[str, str] = {}

    def on_failed(self, what: str, error: Exception) -> None:
        hint = error.hint if isinstance(error, OperatorError) else ""
        self.on_told(what, f"{error}; {hint}" if hint else str(error))

    def on_told(self, what: str, why: str) -> None:
        if why != self._why.get(what):
            self._report.note(f"{what}: {why}; trying again")
        self._why[what] = why

    def on_passed(self, what: str) -> None:
        if self._why.pop(what, ""):
            self._report.note(f"{what}: all well again", style="dim")

    def why(self, what: str) -> str:
        """Empty while there is none."""
        return self._why.get(what, "")

    def all(self) -> set[str]:
        return set(self._why.values())
