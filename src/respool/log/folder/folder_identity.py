"""The identity of a data folder: `meta.properties`, written once, checked at every start.

```
version=1                      Kafka's
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
node.id=1
respool.layout=1               ours: the layout of the folder
```
Logs of another broker or cluster would be served as ours, so any difference stops the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from respool.model.errors import DataFolderMismatch
from respool.model.ids import BrokerId
from respool.ports.disk import Disk

IDENTITY_NAME = "meta.properties"
LAYOUT = "1"
_VERSION = "1"
# The log of Kafka's controllers, in the folder of a broker that is one as well.
_KAFKAS_METADATA = "__cluster_metadata-0"
_KAFKAS_FOLDER = (
    "the data folder is that of a broker of Apache Kafka, which Respool does not take over: choose another with "
    "--data, and copy the topics from the running Kafka with respool mirror. Nothing was changed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderIdentity:
    cluster_id: str
    broker_id: BrokerId

    def encode(self) -> bytes:
        lines = (
            f"version={_VERSION}",
            f"cluster.id={self.cluster_id}",
            f"node.id={self.broker_id}",
            f"respool.layout={LAYOUT}",
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a `meta.properties` file.

        Raises:
            DataFolderMismatch: it is damaged, or the folder has another layout.
        """
        values = _properties(data)
        if _is_kafkas(values):
            raise DataFolderMismatch(_KAFKAS_FOLDER)
        if values.get("respool.layout") != LAYOUT:
            raise DataFolderMismatch(
                f"the data folder has respool.layout={values.get('respool.layout')} in {IDENTITY_NAME}, this version "
                f"reads {LAYOUT}: use the Respool version that wrote it, or another folder"
            )
        cluster_id, node_id = values.get("cluster.id", ""), values.get("node.id", "")
        if not cluster_id or not (node_id.isascii() and node_id.isdecimal()):
            raise DataFolderMismatch(
                f"{IDENTITY_NAME} is damaged: cluster.id={cluster_id!r}, node.id={node_id!r}"
            )
        return cls(cluster_id=cluster_id, broker_id=BrokerId(int(node_id)))

    def check(self, *, cluster_id: str | None, broker_id: BrokerId) -> None:
        """Compare with the settings. Without a `cluster_id` any cluster is accepted.

        Raises:
            DataFolderMismatch: they differ; the message has both values.
        """
        if self.broker_id != broker_id:
            raise DataFolderMismatch(
                f"the data folder belongs to broker {self.broker_id}, this is broker {broker_id}: "
                "set broker_id, or use another folder"
            )
        if cluster_id is not None and self.cluster_id != cluster_id:
            raise DataFolderMismatch(
                f"the data folder belongs to cluster {self.cluster_id}, this is cluster {cluster_id}: give the broker "
                "another folder (--data), or check which cluster it should join (--etcd, --cluster)"
            )


def refuse_kafkas_folder(disk: Disk) -> None:
    """
    Raises:
        DataFolderMismatch: Apache Kafka keeps its logs in this folder.
    """
    written = disk.read_file(IDENTITY_NAME)
    is_kafkas = (
        disk.exists(_KAFKAS_METADATA) if written is None else _is_kafkas(_properties(written))
    )
    if is_kafkas:
        raise DataFolderMismatch(_KAFKAS_FOLDER)


def _is_kafkas(values: Mapping[str, str]) -> bool:
    # Without `version` the file is damaged, and could be anybody's.
    return "version" in values and "respool.layout" not in values


def _properties(data: bytes) -> dict[str, str]:
    """Parse the `name=value` lines of a Java properties file, as far as these values need it."""
    values = {}
    for line in data.decode("utf-8", errors="replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.lstrip().startswith(("#", "!")):
            values[name.strip()] = value.strip()
    return values
