"""Which cluster a command is about: the settings that lead to it, and the flags by which somebody said so.

What a command tells somebody to type next has the same flags: without them it would find another cluster, or none.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from respool.cli import options, output
from respool.model.errors import SettingsError
from respool.model.operator_errors import UsageError
from respool.model.settings import Settings, is_secret
from respool.node.config import load_settings, unknown_variables


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    settings: Settings
    flags: tuple[str, ...] = ()

    def command(self, *words: object) -> str:
        """A command on the same cluster, for somebody to type."""
        return shlex.join(["respool", "cluster", *map(str, words), *self.flags])

    def where_etcd_was_said(self, environ: Mapping[str, str]) -> str:
        """The flag, variable or file that says where etcd is, as it is said there; the first of them counts."""
        etcd = self.settings.metadata_store.addresses
        if "--etcd" in self.flags or any(one.startswith("etcd=") for one in self.flags):
            return f"--etcd {etcd}"
        if "RESPOOL_ETCD" in environ:
            return f"RESPOOL_ETCD={etcd}"
        if "--config" in self.flags:
            return f'etcd = "{etcd}" in {self.flags[self.flags.index("--config") + 1]}'
        return f'etcd = "{etcd}"'


def address_by(
    *,
    etcd: str | None,
    cluster: str | None,
    config: Path | None,
    insecure: bool,
    pairs: list[str] | None,
) -> ClusterAddress:
    """By flags, the environment, and a broker's own file.

    Raises:
        UsageError: they do not say which cluster, or contradict each other.
        NotFound: there is no such file.
    """
    given = {"etcd": etcd, "cluster": cluster, "insecure": insecure or None}
    flags = options.broker_settings(pairs, given, file=config)
    try:
        settings = load_settings(file=config, environ=os.environ, flags=flags)
    except SettingsError as error:
        raise UsageError(str(error)) from error
    output.note_some(unknown_variables(os.environ))
    if not settings.metadata_store.addresses:
        raise UsageError(
            "which cluster? Its brokers meet in etcd, and where that is was not said",
            hint="give --etcd HOST:PORT, or --config with a broker's settings file, or set RESPOOL_ETCD",
        )
    as_given: list[str] = []
    for flag, said in {"--config": config, "--etcd": etcd, "--cluster": cluster}.items():
        if said is not None:
            as_given += [flag, str(said)]
    if insecure:
        as_given.append("--insecure")
    for name, value in options.parse_assignments(pairs).items():
        # A password is not shown to whoever reads what is to be typed.
        as_given += ["--set", f"{name}={'...' if is_secret(name) else value}"]
    return ClusterAddress(settings=settings, flags=tuple(as_given))
