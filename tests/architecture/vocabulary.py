"""The words that this code base no longer uses, each with its replacement, and the search for them.

A word is searched in file names, identifiers, comments, docstrings, help texts and pages alike: `SeldomLog`,
`seldom_log` and "seldom log" are the same words. Words that are ordinary English in another meaning (a place, to hold,
the order of records) are searched as parts of longer phrases or as whole identifiers only. `docs/adr/` is history and
is not searched.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

SEARCHED = [
    "src",
    "docs",
    "bench",
    "demo",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "Makefile",
]
NOT_SEARCHED = ("docs/adr/", "docs/benchmarks/")


@dataclass(frozen=True, kw_only=True)
class Retired:
    """A word or phrase: a regular expression over lower-case words.

    Attributes:
        only: the paths it is searched in, if it is an ordinary word elsewhere.
        allowed: paths (regular expressions) in which it may stay, each with the reason.
    """

    pattern: str
    instead: str
    only: str = ""
    allowed: dict[str, str] = field(default_factory=dict)

    def is_searched_in(self, path: str) -> bool:
        return re.match(self.only, path) is not None and not any(
            re.match(one, path) for one in self.allowed
        )


@dataclass(frozen=True, kw_only=True)
class Text:
    """A file as lower-case words, one space between them, and where each of its lines begins."""

    path: str
    words: str
    line_starts: list[int]

    def lines_with(self, pattern: str) -> list[int]:
        found = re.finditer(rf"\b(?:{pattern})\b", self.words)
        return [bisect_right(self.line_starts, one.start()) for one in found]


@cache
def texts() -> list[Text]:
    """Every searched file. The file's name counts as its first line."""
    return [_text(path) for path in _files()]


def occurrences(retired: Retired) -> list[str]:
    """`path:line` of each occurrence that no exception allows."""
    return [
        f"{text.path}:{line - 1}"
        for text in texts()
        if retired.is_searched_in(text.path)
        for line in text.lines_with(retired.pattern)
    ]


def _files() -> list[Path]:
    found = [ROOT / name for name in SEARCHED]
    files = [
        file for path in found for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
    ]
    return [
        file
        for file in files
        if file.suffix in {".py", ".md", ".toml", ""}
        and file.is_file()
        and not file.relative_to(ROOT).as_posix().startswith(NOT_SEARCHED)
    ]


def _text(path: Path) -> Text:
    relative = path.relative_to(ROOT).as_posix()
    lines = [_words(line) for line in [relative, *path.read_text().splitlines()]]
    starts = [0]
    for line in lines[:-1]:
        starts.append(starts[-1] + len(line) + 1)
    return Text(path=relative, words=" ".join(lines), line_starts=starts)


def _words(line: str) -> str:
    """`HostedReplicas.take_over` -> "hosted replicas . take over". Punctuation stays: no phrase spans two sentences."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", line)
    return " ".join(re.sub(r"[^a-z0-9'.,;:()]+", " ", spaced.lower()).split())


RETIRED = [
    Retired(pattern=r"dices?", instead="random source"),
    Retired(pattern=r"giv(e|es|en|ing) back|gave back", instead="release"),
    Retired(pattern=r"holdings|let go", instead="hosted replicas; closed"),
    Retired(pattern=r"seats?|seated", instead="controller lease, election"),
    Retired(pattern=r"(death|dead) watch", instead="failure detector"),
    Retired(pattern=r"end going on|going on", instead="epoch transition; continues"),
    Retired(
        pattern=r"giv(e|es|ing|en) up|gave up",
        instead="offline replica; fail, discard, stop retrying",
        allowed={
            "src/respool/spark/sink/state.py": "the name of a stored field",
            "src/respool/client/messages/retry/": "an option of Retry, as programs write it",
            "docs/retries.md": "the same",
            "src/respool/sim/clients/retrying_member.py": "the same",
            "examples/retries/": "the same",
            "bench/versus/retry_load.py": "the same",
        },
    ),
    Retired(pattern=r"taken back|takes? back", instead="offline replica is cleared"),
    Retired(
        pattern=r"settle[sd]?|settling",
        instead="resolve, drain, reconcile, become leader",
        allowed={"src/respool/spark/sink/state.py": "the name of a stored field"},
    ),
    Retired(pattern=r"copy turns?|keep back for", instead="replication throttle"),
    Retired(
        pattern=r"lent|lends?|lending|lender|borrow(s|ed|ing|er)?",
        instead="local read, file range",
        allowed={
            "src/respool/model/setting_fields.py": "a setting's old name, still accepted",
            "src/respool/broker/broker.py": "a metric's name, which dashboards use",
            "docs/metrics.md": "that metric",
            "docs/operating.md": "the file name of an ADR",
            "CHANGELOG.md": "the old name of the setting and of the metric",
            "src/respool/sim/sim_plan.py": "names a random source: another name is another run for each seed",
        },
    ),
    Retired(
        pattern=r"neighbours?",
        instead="local read",
        allowed={"src/respool/sim/sim_world.py": "names a random source, as in sim_plan.py"},
    ),
    Retired(
        pattern=r"cut offs?|cuts off|cutting off|end after cut|(is|was|are|were|be) cut|cuts? (it|them) off"
        r"|bytes cut|cut batch",
        instead="truncate",
    ),
    Retired(
        pattern=r"ends of (a )?transactions?|transactions' ends",
        instead="transaction markers",
    ),
    Retired(pattern=r"read marks?", instead="watermarks"),
    Retired(pattern=r"group shards?", instead="Kafka: CoordinatorShard"),
    Retired(pattern=r"share[sd]? out|sharing out", instead="assign"),
    Retired(
        pattern=r"passing troubles?|want of handles?",
        instead="transient error; too many open files",
    ),
    Retired(pattern=r"seldom", instead="RateLimitedLog; rarely"),
    Retired(pattern=r"until it holds", instead="retry_on_conflict"),
    Retired(pattern=r"run to the end", instead="run_uncancelled"),
    Retired(pattern=r"lanes?", instead="partition queue"),
    Retired(pattern=r"parcels?", instead="producer batch"),
    # ZooKeeper is the name of what Kafka had.
    Retired(pattern=r"(?<!zoo )keepers?", instead="maintenance thread"),
    Retired(pattern=r"outlets?", instead="bounded queue"),
    Retired(
        pattern=r"gathering|cutting|packing|stamping",
        instead="accumulator, batch builder, sequence numbering",
    ),
    Retired(
        pattern=r"cast|stages?|ears?|moments|sights?",
        instead="workload, world, log capture, triggers, observer",
        only="src/respool/sim/",
        allowed={
            "src/respool/sim/clients/workload.py": "names a random source, as in sim_plan.py",
            "src/respool/sim/net/simulated_transport.py": "typing.cast",
        },
    ),
    Retired(pattern=r"troubles?", instead="fault, error"),
    Retired(pattern=r"homes?|engines?", instead="backend", only="src/respool/testing/"),
    Retired(
        pattern=r"leftovers?|instead of a gap|surely ms|recorded ends|room settings|mended|own client|cluster guests",
        instead="name what it is",
    ),
    Retired(
        pattern=r"when answered|ask each|offsets asked|home lock",
        instead="name what it is",
    ),
    Retired(
        pattern=r"is none any ?more|none any ?more|had better|lest|anew|whoever|vouch(es)? for|want of",
        instead="subject, verb, object",
    ),
    Retired(
        pattern=r"(is|are|be|was|were|been)( not)? told",
        instead="is reported, is logged, is notified",
    ),
    Retired(pattern=r"so long|so many", instead="a number or a duration with its name; while"),
    Retired(pattern=r"go on|goes on|went on|gone on", instead="continue, resume"),
    Retired(
        pattern=r"rooms|floors|the floor|doors?|the house",
        instead="package, layer, entry point",
    ),
    Retired(pattern=r"nearer|nearby", instead="preferred read replica; in the same rack"),
    Retired(
        pattern=r"hurry|hurries|hurried",
        instead="request a sync; fetch ahead",
        allowed={
            "src/respool/model/setting_fields.py": "a setting's old name, still accepted",
            "CHANGELOG.md": "that name",
        },
    ),
]
