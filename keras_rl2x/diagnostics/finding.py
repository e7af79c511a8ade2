"""What a check has to say."""

from dataclasses import dataclass
from dataclasses import replace

SEVERITIES = ("warning", "error")  # from the mild to the grave


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong; prints as three lines.

    Attributes:
        code: short name in snake case, such as `"dead_units"`.
        severity: `"error"` where learning cannot work, `"warning"` where it suffers.
        where: the layer, network or setting that is meant.
        evidence: what was measured, with numbers.
        remedy: what to change.
        first_step: int, env step at which it was first seen.
    """

    code: str
    severity: str
    where: str
    evidence: str
    remedy: str
    first_step: int = 0

    def __str__(self) -> str:
        head = f"{self.severity.upper()} {self.code}: {self.where}"
        return f"{head} (step {self.first_step:,})\n  {self.evidence}\n  {self.remedy}"

    def at(self, step: int) -> "Finding":
        """The same finding, seen at an env step."""
        return replace(self, first_step=step)


def error(code: str, where: str, evidence: str, remedy: str) -> Finding:
    """A finding that keeps an agent from learning."""
    return Finding(code, "error", where, evidence, remedy)


def warning(code: str, where: str, evidence: str, remedy: str) -> Finding:
    """A finding that makes learning slow or unsafe."""
    return Finding(code, "warning", where, evidence, remedy)
