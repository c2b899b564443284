"""Credentials in locations that the user gives do not reach plans, journals, messages and tracebacks."""

from __future__ import annotations

import threading
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from pyarrow import fs

import lightmeter as lm
from lightmeter.errors import ManifestError, SettingsError, UsageError
from lightmeter.settings import read_settings
from tests.sweeps import sweep

KEY, SECRET = "AKIAKEYOFATEST", "SecretOfATest/plus+"
NEEDLES = (KEY, "SecretOfATest")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("LIGHTMETER_SETTINGS", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("LIGHTMETER_BASE_URL", "LIGHTMETER_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def uri_at(host: str, port: int, name: str = "m.csv") -> str:
    options = f"scheme=http&endpoint_override={host}%3A{port}&region=us-east-1"
    return f"s3://{KEY}:{quote(SECRET, safe='')}@manifests/{name}?{options}"


@pytest.fixture(scope="module")
def uri():
    """Return the URI, with its key, of a manifest in a bucket."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = fs.S3FileSystem(
        access_key=KEY, secret_key=SECRET, endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True
    )
    there.create_dir("manifests")
    with there.open_output_stream("manifests/m.csv") as file:
        file.write(b"url\nhttps://e.org/a.jpg?X-Amz-Signature=of-a-row\n")
    yield uri_at(host, port)
    server.stop()


@pytest.fixture
def closed_store():
    """Return the URI of a manifest in a store that answers every request with 403."""

    class Closed(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(403)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Closed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield uri_at("127.0.0.1", server.server_port)
    server.shutdown()
    server.server_close()


def assert_no_key(text: str | bytes) -> None:
    as_text = text.decode("latin-1") if isinstance(text, bytes) else text
    assert not [needle for needle in NEEDLES if needle in as_text], as_text[:2000]


async def test_a_plan_does_not_hold_the_key_of_its_manifest(uri, tmp_path, monkeypatch):
    """Journal, plan file and texts of a plan hold no key; the plan file is loaded with the key of the environment."""
    plan = await lm.aio.plan(uri, features=["colors"], precheck=False)
    saved = plan.save(tmp_path / "plan.json")
    for path in (saved, *plan.folder.iterdir()):
        assert_no_key(path.read_bytes())
    assert_no_key(f"{plan} {plan!r} {plan._repr_html_()} {plan.to_dict()}")
    assert "X-Amz-Signature=of-a-row" in saved.read_text()  # the URL of a row is data: the service needs it
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert lm.load_plan(saved).to_dict() == plan.to_dict()


async def test_a_plan_file_whose_manifest_needs_a_key_says_where_to_set_it(uri, closed_store, tmp_path):
    """If the store refuses to show the manifest of a plan file, the error names the variables of the key."""
    saved = (await lm.aio.plan(uri, precheck=False)).save(tmp_path / "plan.json")
    place, there = (one.partition("endpoint_override=")[2].partition("&")[0] for one in (uri, closed_store))
    saved.write_text(saved.read_text().replace(place, there))
    with pytest.raises(ManifestError, match=r"^s3://manifests/m\.csv: it cannot be opened") as raised:
        lm.load_plan(saved)
    assert "AWS_ACCESS_KEY_ID" in raised.value.hint


@pytest.mark.parametrize(
    "location",
    [
        f"s3://{KEY}:{SECRET}@manifests/m.csv",
        f"s3:/{KEY}:{SECRET}@manifests/m.csv",
        f"nonsense://{KEY}:SecretOfATest@host/m.csv",
        f"https://{KEY}:SecretOfATest@e.org/m.csv",
        "https://e.org/m.csv?X-Amz-Signature=SecretOfATest",
        # (waits for six seconds)
        sweep(f"s3://{KEY}:SecretOfATest[@manifests/m.csv"),
    ],
)
async def test_an_error_about_a_location_has_no_key_in_its_traceback(location):
    """A manifest or tables that cannot be opened: message, hint and chained exceptions hold no key."""
    with pytest.raises(UsageError) as manifest:
        await lm.aio.plan(location)
    with pytest.raises(lm.LightmeterError) as tables:
        lm.open(location).sql("SELECT 1")
    for raised in (manifest, tables):
        printed = [str(raised.value), raised.value.hint]
        frames = traceback.TracebackException.from_exception(raised.value)
        while frames is not None:
            printed.extend(frames.format_exception_only())
            frames = frames.__cause__ or (None if frames.__suppress_context__ else frames.__context__)
        assert_no_key("\n".join(printed))


@pytest.mark.parametrize("base_url", [f"https://{KEY}:SecretOfATest@e.org", f"{KEY}:SecretOfATest@e.org"])
async def test_a_base_url_with_credentials_is_refused_before_it_is_stored(base_url, monkeypatch):
    """An option or a variable with credentials in the base URL is an error that does not show them."""
    with pytest.raises(SettingsError, match=r"base-url: .*LIGHTMETER_API_KEY") as option:
        await lm.aio.plan(["https://e.org/a.jpg"], base_url=base_url, precheck=False)
    monkeypatch.setenv("LIGHTMETER_BASE_URL", base_url)
    with pytest.raises(SettingsError, match=r"LIGHTMETER_BASE_URL: .*LIGHTMETER_API_KEY") as variable:
        read_settings()
    for raised in (option, variable):
        assert_no_key("".join(traceback.format_exception(raised.value)).replace(base_url, ""))
        assert_no_key(f"{raised.value} {raised.value.hint}")


def test_settings_do_not_show_the_password_of_a_proxy(monkeypatch):
    """The text of the settings has no proxy, which may hold a password."""
    monkeypatch.setenv("LIGHTMETER_PROXY", f"http://{KEY}:SecretOfATest@proxy:3128")
    assert_no_key(repr(read_settings()))


async def test_a_uri_is_no_output_folder(tmp_path):
    """A URI as output folder is an error that names the command for tables elsewhere; no folder is created."""
    plan = await lm.aio.plan(["https://e.org/a.jpg"], precheck=False)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SettingsError, match="s3:/bucket/out") as raised:
        await lm.aio.run(plan, f"s3://{KEY}:SecretOfATest@bucket/out")
    assert "lightmeter rebuild DIR --to URI" in raised.value.hint
    assert sorted(tmp_path.iterdir()) == before
