"""Every sentence of the contract that binds the server, and the tests that hold it: a list to read, and to keep true.

`S` is the specification of the service, by its sections; `W` the notes on what public services and clients do; `C` the
outside of this service: what those who run it rely on.
A sentence about what only descriptions of a provider show (roles, languages, prompts) is held where the options reach
a back end; one that speaks to clients alone is not on the list.
"""

from __future__ import annotations

import ast
from datetime import date
from pathlib import Path

import pytest

from lightmeter.pricing.rates import RateTable, Rounding
from lightmeter.service.analysis.analyzer import Analyzer
from lightmeter.service.analysis.job import AnalysisJob
from lightmeter.service.backends.base import AnalysisOptions
from lightmeter.service.ingest.fetch import Fetcher
from lightmeter.service.store.credits import Tariff
from lightmeter.testing import tiny_png
from lightmeter.wire.constants import FEATURES, ROLES
from lightmeter.wire.request import AnalyzeRequest
from lightmeter.wire.response import Entries

HERE = Path(__file__).parent

A, E, V = "analyze", "errors", "videos"

SENTENCES: list[tuple[str, str, list[str]]] = [
    ("S1", "all bodies are JSON", [f"{E}:test_other_methods_and_paths_are_answered_in_json"]),
    ("S1", "a single image is answered synchronously", [f"{A}:test_a_single_url_is_answered_at_once"]),
    (
        "S1",
        "several assets in one request, or any video, are answered asynchronously",
        [
            f"{A}:test_several_images_are_acknowledged_then_processed_then_completed",
            f"{V}:test_any_video_by_url_is_acknowledged",
        ],
    ),
    (
        "S1",
        "every completed response reports the credits charged and the remaining balance",
        [
            f"{A}:test_a_single_url_is_answered_at_once",
            f"{A}:test_several_images_are_acknowledged_then_processed_then_completed",
        ],
    ),
    (
        "S2.1",
        "request_id, user_id, urls, files, file_names, features, backends, role, … are echoed",
        [f"{A}:test_what_was_asked_is_echoed", f"{A}:test_files_without_names_are_still_counted"],
    ),
    (
        "S2.1",
        "features requested; empty means all. backends requested; empty means all defaults",
        [f"{A}:test_back_ends_and_features_are_echoed_as_requested"],
    ),
    ("S2.2", "assets: one entry per analyzed image or video", [f"{A}:test_many_callers_at_once_get_their_own_answers"]),
    (
        "S2.2",
        "errors from individual backends; an empty array when none",
        [f"{A}:test_a_single_url_is_answered_at_once", "analyzer:test_a_failing_back_end_fails_alone"],
    ),
    (
        "S2.3",
        "name: URL or file name of the analyzed item",
        [f"{A}:test_a_single_url_is_answered_at_once", f"{A}:test_a_single_file_is_answered_at_once"],
    ),
    (
        "S2.3",
        "keys of tags are tag names, each value an array of {name, score, source}",
        [f"{A}:test_all_local_back_ends_answer_together"],
    ),
    ("S2.3", "colors: hex, score, share, red, green, blue", [f"{A}:test_colors_have_the_form_of_the_contract"]),
    ("S2.3", "nsfw: the numeric form or the likelihood form", ["backends/opennsfw:test_numeric_form"]),
    ("S2.3", "descriptions: description, source", ["analyzer:test_all_back_ends_are_merged_and_charged"]),
    (
        "S2.3",
        "faces, texts, brands: present when the feature is enabled",
        [
            "backends/contract:test_only_what_was_asked_for",
            "frame_summary:test_parts_that_no_frame_has_are_absent",
            "backends:test_parts_that_were_asked_for_are_there_and_empty",
        ],
    ),
    ("S2.5", "one credit equals one cent", [f"{A}:test_all_local_back_ends_answer_together"]),
    (
        "S2.6",
        "the acknowledgment: echo fields without credits_paid, credits and all, plus success and response_uri",
        [f"{A}:test_several_images_are_acknowledged_then_processed_then_completed"],
    ),
    (
        "S2.6",
        "response_uri is {base_url}/api/response/<request_id>",
        [f"{A}:test_the_address_of_results_is_the_one_the_caller_used"],
    ),
    (
        "S2.7",
        'in progress: echo fields plus status "processing"',
        [f"{A}:test_several_images_are_acknowledged_then_processed_then_completed"],
    ),
    (
        "S3",
        "processing → complete when all assets are processed",
        [f"{A}:test_several_images_are_acknowledged_then_processed_then_completed", "jobs:test_an_end_is_an_end"],
    ),
    ("S4", "all endpoints require authentication", [f"{E}:test_without_a_key_access_is_denied"]),
    (
        "S4.1",
        "GET with the same parameters as query parameters is also accepted",
        [f"{A}:test_get_takes_what_post_takes", f"{A}:test_get_takes_a_file"],
    ),
    ("S4.1", "url[] and file[] used for multiple values", [f"{A}:test_get_takes_lists"]),
    ("S4.1", "string or array of string", ["parameters:test_a_string_is_a_list_of_one"]),
    (
        "S4.1",
        "file: base64 value or data URI",
        [f"{A}:test_a_single_file_is_answered_at_once", "parameters:test_uploads_come_out_as_they_went_in"],
    ),
    (
        "S4.1",
        "role, language, prompt: what descriptions are shaped by",
        ["conformance:test_role_language_and_prompt_reach_the_back_end"],
    ),
    ("S4.1", "tag_score: minimum tag confidence score", [f"{A}:test_tags_below_the_score_are_left_out"]),
    (
        "S4.1",
        "capture_interval > 0; max_frames, 0 means no limit",
        [f"{V}:test_frames_are_captured_as_asked", "decode:test_a_video_without_a_limit_is_captured_whole"],
    ),
    ("S4.1", "defaults: general, 0.9, 1, 3", [f"{A}:test_defaults_are_those_of_the_contract"]),
    (
        "S4.1",
        "videos are always asynchronous",
        [f"{V}:test_any_video_by_url_is_acknowledged", f"{V}:test_a_single_video_by_content_is_acknowledged"],
    ),
    (
        "S4.1",
        "frames are extracted every capture_interval seconds and each is analyzed as a separate image",
        [f"{V}:test_frames_are_captured_as_asked", f"{V}:test_a_real_video_by_all_back_ends"],
    ),
    ("S4.2", "when finished: the full response", [f"{A}:test_a_result_can_be_read_again"]),
    ("S4.3", "GET /api/credits answers {credits}", ["conformance:test_the_balance_is_one_number"]),
    ("S5.1", "X-API-Key: Token <API_KEY>", [f"{E}:test_both_headers_carry_the_key"]),
    ("S5.2", "requests with a JSON body carry application/json", [f"{A}:test_any_content_type_will_do"]),
    ("S5.3", 'missing or invalid key: "Access denied."', [f"{E}:test_without_a_key_access_is_denied"]),
    ("S7", "a backend fails for an asset: entry in all.errors", ["analyzer:test_a_failing_back_end_fails_alone"]),
    (
        "S8",
        "20 MB maximum per file",
        [f"{E}:test_files_over_20_mb_are_refused", "parameters:test_the_limit_is_on_decoded_bytes"],
    ),
    (
        "S8",
        "2048 characters maximum of a query",
        [f"{A}:test_a_query_may_have_2048_characters", f"{A}:test_very_long_queries_get_the_same_text"],
    ),
    ("W.dialects", 'synchronous answers carry status "completed"', [f"{A}:test_a_single_url_is_answered_at_once"]),
    (
        "W.dialects",
        'acknowledgments carry status "queued"',
        [f"{A}:test_several_images_are_acknowledged_then_processed_then_completed"],
    ),
    ("W.dialects", "a list of one is accepted as one", [f"{A}:test_a_single_url_is_answered_at_once"]),
    ("W.dialects", "Authorization: Token KEY still accepted", [f"{E}:test_both_headers_carry_the_key"]),
    (
        "W.dialects",
        "failed carries an error",
        ["processes/poison:test_a_poison_request_fails_and_others_complete"],
    ),
    ("W.dialects", "results can be read for 24 hours after completion", [f"{E}:test_results_expire_after_a_day"]),
    ("W.errors", "Access denied. 401", [f"{E}:test_without_a_key_access_is_denied"]),
    ("W.errors", "File/URL params are required. 400", [f"{E}:test_nothing_to_analyse_is_a_free_key_check"]),
    ("W.errors", "Invalid request format. 400", [f"{E}:test_a_body_that_is_no_json_object_is_refused"]),
    ("W.errors", "Invalid URLs detected. 400", [f"{E}:test_urls_that_cannot_be_fetched_in_principle_are_refused"]),
    ("W.errors", "File too large. Max 20MB. 413", [f"{E}:test_files_over_20_mb_are_refused"]),
    ("W.errors", "Max request length exceeded. 414", [f"{A}:test_a_query_may_have_2048_characters"]),
    ("W.errors", "No credits. / Insufficient credits. 402", [f"{E}:test_no_credits_and_too_few"]),
    (
        "W.errors",
        "Request ID <id> not found. 404: unknown, expired, or another account's",
        [
            f"{E}:test_unknown_ids_are_not_found",
            f"{E}:test_results_expire_after_a_day",
            f"{E}:test_ids_of_others_are_not_found",
        ],
    ),
    (
        "W.errors",
        "all.errors is a flat list of strings",
        ["conformance:test_errors_are_a_flat_list_of_texts", f"{V}:test_a_broken_video_costs_nothing"],
    ),
    (
        "W.values",
        "features (7), roles (12)",
        [
            "openapi:test_requests_hold_every_parameter_and_its_values",
            "conformance:test_every_role_and_feature_is_taken",
        ],
    ),
    ("W.values", "languages: an unknown one means English", ["conformance:test_any_language_is_taken"]),
    ("W.values", "likelihood: six values", ["frame_summary:test_likelihoods_are_compared_by_what_they_mean"]),
    ("W.values", "video: mp4, webm, mov, mkv, avi", ["conformance:test_every_video_suffix_is_acknowledged"]),
    (
        "W.values",
        "cost: rounded up to whole credits; each video frame is charged as an image",
        [
            f"{A}:test_all_local_back_ends_answer_together",
            "credits:test_rounding_per_request_includes_all_frames",
        ],
    ),
    (
        "W.clients",
        "a browser extension",
        ["clients:test_the_browser_extension", "parameters:test_empty_values_mean_none"],
    ),
    ("W.clients", "a CMS plugin", ["clients:test_the_cms_plugin"]),
    (
        "W.clients",
        "a design-tool plugin",
        ["clients:test_the_design_tool_plugin", "index_page:test_callers_from_pages_of_other_hosts_are_answered"],
    ),
    ("W.clients", "the documented sample loop", ["clients:test_the_documented_sample_loop"]),
    ("C", "prints `listening on http://HOST:PORT` once ready", ["../cli/serve:test_it_says_where_it_listens"]),
    (
        "C",
        "--key makes the account if it is missing and prints nothing secret",
        ["../cli/serve:test_a_key_opens_an_account_and_is_written_nowhere"],
    ),
    ("C", "GET /healthz, GET /readyz", [f"{E}:test_probes_need_no_key"]),
    (
        "C",
        "GET /readyz says 503 while the service stops",
        ["probes:test_a_service_that_stops_says_so_and_still_gives_results"],
    ),
    ("C", "GET /metrics (Prometheus)", ["metrics:test_answers_are_counted_by_endpoint_and_status"]),
    ("C", "GET /api/backends", ["backends:test_back_ends_are_reported_with_prices_and_reasons"]),
    (
        "C",
        "what is asked for and not served is a sentence in all.errors, once in an answer",
        [
            "backends:test_a_feature_that_nobody_serves_is_reported_beside_the_others",
            "backends:test_a_back_end_that_is_not_available_is_reported_beside_the_others",
            "backends:test_polled_answers_tell_it_once",
        ],
    ),
    ("C", "GET /openapi.json", ["schemathesis:test_whatever_is_asked_the_answer_is_documented"]),
    ("C", "GET /: a page that documents and tries the API", ["index_page:test_a_picture_is_chosen_and_seen_through"]),
    ("C", "wrong values get 400 and a sentence with what is allowed", [f"{E}:test_wrong_values_are_named"]),
    (
        "C",
        "Idempotency-Key is honoured",
        [
            "credits:test_a_repeated_request_with_its_key_is_charged_once",
            "credits:test_idempotency_keys_are_separate_by_account",
        ],
    ),
    ("C", "SIGTERM drains", ["processes/durability:test_sigterm_lets_running_requests_finish"]),
    (
        "C",
        "acknowledged requests survive kill -9",
        ["processes/durability:test_an_acknowledged_request_survives_kill_9"],
    ),
    (
        "C",
        "private addresses are refused unless --allow-private",
        ["fetch:test_a_strict_service_fetches_nothing_private"],
    ),
]


def functions(path: Path) -> set[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_sentence_has_its_test():
    """Every sentence has tests in the list, and they exist."""
    assert [sentence for _, sentence, tests in SENTENCES if not tests] == []
    names_by_file: dict[str, set[str]] = {}
    for file, _, name in (test.rpartition(":") for _, _, tests in SENTENCES for test in tests):
        names_by_file.setdefault(file, set()).add(name)
    for file, names in names_by_file.items():
        folder, _, stem = file.rpartition("/")
        assert names <= functions(HERE / folder / f"test_{stem}.py"), file


def test_no_section_is_left_out():
    """Every section that binds a server is in the list."""
    sections = {where for where, _, _ in SENTENCES}
    assert sections >= {"S1", "S3", "S4", "S7", "S8", *(f"S2.{n}" for n in (1, 2, 3, 5, 6, 7))}
    assert sections >= {*(f"S4.{n}" for n in (1, 2, 3)), *(f"S5.{n}" for n in (1, 2, 3))}
    assert sections >= {f"W.{name}" for name in ("dialects", "errors", "values", "clients")}


class Listener:
    """A back end that records its options."""

    name = "listener"
    features = frozenset({"descriptions"})

    def __init__(self):
        self.calls = []

    def warm(self):
        """Do nothing: there is no model."""

    def analyze(self, pictures, features, options):
        """Return no entries."""
        self.calls.append((features, options))
        return [Entries() for _ in pictures]


async def nothing_more(_):
    """Fail: no more pictures are expected."""


async def test_role_language_and_prompt_reach_the_back_end():
    """Role, language and prompt reach the back end unchanged."""
    listener = Listener()
    rates = RateTable(date(2026, 1, 1), {"listener": {"descriptions": 1000}}, ("listener",))
    parameters = {"role": "realtor", "language": "German", "prompt": "What is the kitchen like?"}
    request = AnalyzeRequest(backend=["listener"], feature=["descriptions"], **parameters)
    async with Fetcher(allow_private=False) as fetcher:
        worker = Analyzer({"listener": listener}, fetcher, Tariff(rates, Rounding.IMAGE), 1)
        try:
            await worker.run(AnalysisJob(request, (tiny_png(),), ("a.png",)), nothing_more)
        finally:
            worker.close()
    assert listener.calls == [(frozenset({"descriptions"}), AnalysisOptions(**parameters))]


async def test_the_balance_is_one_number(caller):
    """The balance is `{credits}` and nothing else."""
    assert (await caller.send("GET", "/api/credits")).body == {"credits": 1000}


async def test_errors_are_a_flat_list_of_texts(caller, site):
    """The errors of all assets are one flat list of strings."""
    urls = [site.url(path) for path in ("status/404/x.png", "page/x.jpg", "broken/x.jpg", "broken_video/x.mp4")]
    done = await caller.finished(await caller.ask(url=[*urls, site.url("picture/1.png")]))
    assert (len(done["all"]["assets"]), len(done["all"]["errors"])) == (1, 4)
    assert all(isinstance(error, str) and error for error in done["all"]["errors"])


async def test_every_role_and_feature_is_taken(caller, encoded):
    """Every role and feature is accepted, alone and together."""
    for role in ROLES:
        answered = await caller.ask(file=encoded(), role=role)
        assert (answered.status, answered.body["role"]) == (200, role)
    for features in (*([feature] for feature in FEATURES), list(FEATURES)):
        answered = await caller.ask(file=encoded(), feature=features)
        assert (answered.status, answered.body["features"]) == (200, features)


@pytest.mark.parametrize("language", ["English", "german", "PORTUGUESE", "Klingon", "中文"])
async def test_any_language_is_taken(caller, encoded, language):
    """An unknown language is not an error."""
    answered = await caller.ask(file=encoded(), language=language)
    assert (answered.status, answered.body["status"]) == (200, "completed")


@pytest.mark.parametrize("suffix", ["mp4", "webm", "mov", "mkv", "avi", "MP4"])
async def test_every_video_suffix_is_acknowledged(caller, site, suffix):
    """A URL with a video suffix is acknowledged before it is fetched."""
    answered = await caller.ask(url=site.url(f"video/clip.{suffix}?version=2"))
    assert answered.body["status"] == "queued"
    assert (await caller.finished(answered))["credits_paid"] == 3
