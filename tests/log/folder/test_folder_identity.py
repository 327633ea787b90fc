"""A data folder says whose it is, and is believed."""

import pytest

from respool.log.folder.folder_identity import FolderIdentity
from respool.model.errors import DataFolderMismatch
from respool.model.ids import BrokerId

OURS = FolderIdentity(cluster_id="MkU3OEVBNTcwNTJENDM2Qg", broker_id=BrokerId(3))
OUR_TEXT = b"version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=3\nrespool.layout=1\n"


def test_the_text_is_kafkas_with_one_line_of_ours() -> None:
    assert OURS.encode() == OUR_TEXT
    assert FolderIdentity.decode(OUR_TEXT) == OURS


def test_comments_and_unknown_lines_are_passed_over() -> None:
    assert FolderIdentity.decode(b"#\n# node.id=9\n!x=y\n\ndirectory.id=abc\n" + OUR_TEXT) == OURS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "respool.layout=None"),
        (b"version=1\ncluster.id=abc\nnode.id=3\n", "Apache Kafka"),
        (OUR_TEXT.replace(b"layout=1", b"layout=2"), "respool.layout=2 .* reads 1"),
        (OUR_TEXT.replace(b"node.id=3", b"node.id=x"), "node.id='x'"),
        (OUR_TEXT.replace(b"node.id=3", b"node.id=-3"), "node.id='-3'"),
        (OUR_TEXT.replace(b"cluster.id", b"cluster"), "cluster.id=''"),
        (b"\xff\xfe\0\0", "respool.layout=None"),
    ],
)
def test_what_is_not_a_folder_of_ours_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(DataFolderMismatch, match=why):
        FolderIdentity.decode(text)


def test_the_right_broker_of_the_right_cluster_may_have_it() -> None:
    OURS.check(cluster_id=OURS.cluster_id, broker_id=BrokerId(3))
    OURS.check(cluster_id=None, broker_id=BrokerId(3))


def test_another_broker_or_cluster_may_not_and_both_are_named() -> None:
    with pytest.raises(DataFolderMismatch, match="broker 3, this is broker 4"):
        OURS.check(cluster_id=None, broker_id=BrokerId(4))
    with pytest.raises(
        DataFolderMismatch, match="cluster MkU3OEVBNTcwNTJENDM2Qg, this is cluster x"
    ):
        OURS.check(cluster_id="x", broker_id=BrokerId(3))
