import logging
from pathlib import Path

import pytest
import trustme

from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_tls import EtcdTls


class Files:
    def __init__(self, folder: Path) -> None:
        self.ca, self.cert, self.key = (folder / name for name in ("ca", "cert", "key"))
        self.options = EtcdOptions(
            endpoints=("https://127.0.0.1:1",),
            ca_file=str(self.ca),
            cert_file=str(self.cert),
            key_file=str(self.key),
        )

    def renew(self, *, with_key: bool = True) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("broker.example")
        authority.cert_pem.write_to_path(str(self.ca))
        issued.cert_chain_pems[0].write_to_path(str(self.cert))
        if with_key:
            issued.private_key_pem.write_to_path(str(self.key))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    files = Files(tmp_path)
    files.renew()
    return files


def test_files_are_read_again_only_when_they_have_changed(files: Files) -> None:
    tls = EtcdTls(files.options)
    first = tls.context()
    assert tls.context() is first
    files.renew()
    second = tls.context()
    assert second is not first
    assert tls.context() is second
    assert second.get_ca_certs() != first.get_ca_certs()


def test_files_of_no_use_leave_the_old_ones_in_use_and_are_told_once(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    tls = EtcdTls(files.options)
    first = tls.context()
    # The key is not written yet.
    files.renew(with_key=False)
    assert tls.context() is first
    assert tls.context() is first
    assert len(caplog.records) == 1
    assert "the old ones stay in use" in caplog.text
    files.key.unlink()
    assert tls.context() is first
    files.renew()
    assert tls.context() is not first


def test_files_that_cannot_be_read_at_the_start_are_an_error(files: Files) -> None:
    files.cert.unlink()
    with pytest.raises(OSError, match="No such file"):
        EtcdTls(files.options)
