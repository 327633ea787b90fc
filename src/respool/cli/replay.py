"""`respool replay`: play a stretch of a topic's history again, into another topic or for a new group."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from respool.cli import options, output
from respool.cli.replay_pace import Pace, parse_rate, parse_speed
from respool.cli.replay_range import TimeRange, find_spans, parse_keys, parse_range, print_spans
from respool.model.operator_errors import NotFound, UsageError
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.cli.audit import Act, Audit
    from respool.cli.kafka import Cluster
    from respool.cli.replay_into import Manner
    from respool.cli.replay_plan import Wish

DEFAULT_COMMAND = "run"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EPILOG = (
    "Live groups are left alone: nothing is committed for them, and the topic itself is only read. Interrupted "
    "(Ctrl-C, a crash, a broker that goes away) and started again with the same arguments, it goes on without gaps or "
    "duplicates.\n\n"
    "Examples:\n"
    "  respool replay rides --from '3 days ago' --to '2 days ago' --into rides-again\n"
    "  respool replay rides --from '2026-11-12 08:00' --to '2026-11-12 09:00' --speed 10x --into rehearsal\n"
    "  respool replay rides --from yesterday --keys ride-7,ride-9 --rate 500/s --into two-rides\n"
    "  respool replay rides --from '1 hour ago' --group billing-check\n"
    "  respool replay list"
)


class ReplayGroup(TyperGroup):
    """`respool replay TOPIC …` means `respool replay run TOPIC …`. A topic called 'list' needs the long form."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT_COMMAND, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=ReplayGroup,
    no_args_is_help=True,
    help="Play a stretch of a topic's history again: respool replay TOPIC --from TIME --to TIME --into TOPIC2.",
    epilog="respool replay TOPIC … is short for respool replay run TOPIC …; see respool replay run --help",
)


@app.command(DEFAULT_COMMAND, epilog=EPILOG)
def run(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", show_default=False, help="The topic to read.")
    ] = None,
    *,
    from_text: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="The first message of that time or later: '3 days ago', '2026-11-12 08:00', earliest.",
        ),
    ] = None,
    to_text: Annotated[
        str,
        typer.Option(
            "--to", metavar="TIME", help="Up to, not including, the first message of that time."
        ),
    ] = "now",
    into: Annotated[
        str | None,
        typer.Option(metavar="TOPIC2", help="Copy into this topic; it is created when not there."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(metavar="NEW", help="Copy nothing: set up a new group that begins at --from."),
    ] = None,
    speed: Annotated[
        str | None,
        typer.Option(
            metavar="1x|10x|max",
            help="1x: as far apart as the messages were; 10x: ten times faster.",
            show_default="max",
        ),
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="N/s", help="At most so many messages a second.")
    ] = None,
    keys: Annotated[
        list[str] | None,
        typer.Option(metavar="K,...", help="Only messages with one of these keys."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, help="Only these keys, one on each line."
        ),
    ] = None,
    compression: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(CODECS), help="How copies are compressed.", show_default="none"
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Go on with this replay; instead of all that describes one."
        ),
    ] = None,
    again: Annotated[
        bool,
        options.flag(
            "--again", text="Begin anew, though the same replay was begun or done before."
        ),
    ] = False,
    dry_run: Annotated[
        bool, options.flag("--dry-run", text="Show what would be replayed, and do nothing.")
    ] = False,
    as_json: options.Json = False,
    broker: options.Broker = options.DEFAULT_BROKER,
) -> None:
    """Replay what a topic held between two times: bounded, at a pace, and able to go on when interrupted."""
    pace = Pace(speed=parse_speed(speed or "max"), rate=parse_rate(rate))
    wanted_keys = parse_keys(keys, key_file)
    if compression is not None and compression not in CODECS:
        raise UsageError(f"--compression {compression!r} is none of {', '.join(CODECS)}")
    if resume is None:
        from respool.cli.replay_plan import Wish

        wish = Wish(
            topic=_required(topic, "the topic to read"),
            from_text=_required(from_text, "--from"),
            to_text=to_text,
            into=into,
            group=group,
            keys=wanted_keys,
        )
        paced = [speed, rate, compression, wanted_keys]
        _check_goal(wish, paced=any(each is not None for each in paced))
        wanted = parse_range(wish.from_text, wish.to_text, now=datetime.now(UTC))
    elif topic or from_text or into or group or again or to_text != "now":
        raise UsageError(
            "--resume ID stands for all that describes the replay", hint="leave it out"
        )

    from respool.cli.audit import Audit
    from respool.cli.kafka import Cluster
    from respool.cli.replay_into import Manner
    from respool.records.batch import Codec

    cluster = Cluster.connect(broker)
    audit = Audit(cluster)
    manner = Manner(pace=pace, codec=Codec[(compression or "none").upper()], as_json=as_json)
    if resume is not None:
        _resume(cluster, audit, manner, resume, wanted_keys)
        return
    if wish.into is not None:
        _replay_into(cluster, audit, manner, wish, wanted, again=again, dry_run=dry_run)
        return
    spans = find_spans(cluster, cluster.topic(wish.topic), wanted)
    if dry_run:
        print_spans(wish.topic, spans)
        return
    from respool.cli.replay_group import ReplayGroup as GroupReplay

    acts = list(audit.acts().values())
    GroupReplay(cluster, audit, as_json=as_json).begin(wish, spans, wanted, acts=acts, again=again)


@app.command(
    "list",
    epilog="Example:\n  respool replay list --json | jq '.replays[] | select(.state != \"done\")'",
)
def list_acts(
    as_json: options.Json = False,
    broker: options.Broker = options.DEFAULT_BROKER,
) -> None:
    """List every reset and replay there was: who, when, what, from where to where, and how it ended."""
    from respool.cli.audit import Audit
    from respool.cli.kafka import Cluster

    acts = list(Audit(Cluster.connect(broker)).acts().values())
    if as_json:
        output.print_json({"replays": [act.document() for act in acts]})
        return
    if output.is_terminal():
        for act in acts:
            _print_act(act)
    else:
        _print_lines(acts)
    if not acts:
        output.note("no reset and no replay yet")


def _print_act(act: "Act") -> None:
    """One block each: side by side, eleven columns are too wide for a terminal."""
    how = f"{act.state}, {act.outcome}" if act.outcome else act.state
    output.print_heading(f"{act.id}  {act.kind} of {act.source}")
    for name, value in (
        ("begun", f"{format_ms(act.begun_ms)} by {act.who}"),
        ("from", act.from_text),
        ("until", act.to_text),
        ("to", act.target),
        ("messages", f"{act.messages:,}"),
        ("state", how),
    ):
        output.print_line(f"  {name:<9} {output.printable(value)}")


def _print_lines(acts: "list[Act]") -> None:
    rows = [
        (
            act.id, act.kind, format_ms(act.begun_ms), act.who, act.source, act.target,
            act.from_text, act.to_text, act.messages, act.state, act.outcome,
        )
        for act in acts
    ]  # fmt: skip
    output.print_rows(output.Columns(), rows)


def _replay_into(
    cluster: "Cluster",
    audit: "Audit",
    manner: "Manner",
    wish: "Wish",
    wanted: TimeRange,
    *,
    again: bool,
    dry_run: bool,
) -> None:
    from respool.cli.audit import DONE
    from respool.cli.replay_into import ReplayInto, latest
    from respool.cli.replay_plan import CopyPlan

    replays = ReplayInto(cluster, audit, manner)
    before = None if again else latest(list(audit.acts().values()), wish)
    if before is not None and before.state != DONE and not dry_run:
        output.note(
            f"going on with replay {before.id}, begun {format_ms(before.begun_ms)} by {before.who}; "
            "--again begins a new one instead"
        )
        replays.carry_out(before, keys=wish.keys)
        return
    spans = find_spans(cluster, cluster.topic(wish.topic), wanted)
    if dry_run:
        print_spans(wish.topic, spans)
        return
    if before is not None and dict(CopyPlan.from_document(before.details["plan"]).spans) == spans:
        _tell_done(before, as_json=manner.as_json)
        return
    replays.carry_out(replays.begin(wish, spans, wanted), keys=wish.keys)


def _resume(
    cluster: "Cluster",
    audit: "Audit",
    manner: "Manner",
    act_id: str,
    keys: frozenset[bytes] | None,
) -> None:
    from respool.cli.audit import DONE
    from respool.cli.replay_into import ReplayInto

    act = audit.acts().get(act_id)
    if act is None or "plan" not in act.details:
        raise NotFound(
            f"there is no replay {act_id!r} into a topic", hint="see: respool replay list"
        )
    if act.state == DONE:
        _tell_done(act, as_json=manner.as_json)
        return
    keys = _same_keys(act, keys)
    ReplayInto(cluster, audit, manner).carry_out(act, keys=keys)


def _same_keys(act: "Act", given: frozenset[bytes] | None) -> frozenset[bytes] | None:
    """The keys the replay was begun with: recorded, or given again because they were too many to be."""
    from respool.cli.replay_plan import Wish, keys_hash

    recorded = Wish.from_document(act.details["wish"]).keys
    wanted_hash = act.details["wish"]["keys_hash"]
    if given is None:
        given = recorded
        if wanted_hash is not None and given is None:
            raise UsageError(
                f"replay {act.id} has more keys than are recorded", hint="give --key-file again"
            )
    if keys_hash(given) != wanted_hash:
        raise UsageError(f"replay {act.id} was begun with other keys")
    return given


def _tell_done(act: "Act", *, as_json: bool) -> None:
    if as_json:
        output.print_json(
            {
                "id": act.id,
                "state": act.state,
                "messages": act.messages,
                "into": act.target,
                "seconds": 0.0,
            }
        )
    output.note(
        f"replay {act.id} has done this already, at {format_ms(act.updated_ms)}: "
        f"{output.counted(act.messages, 'message')} in {act.target}; --again makes another copy"
    )


def _required(value: str | None, what: str) -> str:
    if value is None:
        raise UsageError(f"{what} is missing", hint="see: respool replay run --help")
    return value


def _check_goal(wish: "Wish", *, paced: bool) -> None:
    if (wish.into is None) == (wish.group is None):
        raise UsageError("say where to: either --into TOPIC2 or --group NEW")
    if wish.group is not None and paced:
        raise UsageError(
            "--speed, --rate, --keys, --key-file and --compression are for --into",
            hint="a group's consumers read all of it, as fast as they can",
        )
