"""The automations that lightmeter brings for Prefect, read as Prefect reads them."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

from prefect.settings import get_current_settings

from lightmeter.prefect_integration.automations import read_automations
from lightmeter.prefect_integration.events import EVENTS

FLOWS = Path(__file__).resolve().parents[2] / "flows"


def test_automations_are_valid_and_expect_events_that_exist():
    """Prefect accepts all automations, each expects events that flows send, and the ids are those of the user."""
    block, deployment = str(uuid.uuid4()), str(uuid.uuid4())
    found = read_automations(block, deployment)
    assert len({one.name for one in found}) == len(found) == 5
    for one in found[:4]:
        assert one.trigger.expect <= {*EVENTS}
    actions = [action for one in found for action in one.actions]
    assert {str(action.block_document_id) for action in actions if action.type == "send-notification"} == {block}
    paused = [action for action in actions if action.type == "pause-deployment"]
    assert [action.deployment_id and str(action.deployment_id) for action in paused] == [None, deployment]


def test_automations_without_their_block_or_deployment_are_left_out():
    """Without a notification block and a deployment, those remain that pause a failed one, and end dead runs."""
    kinds = [one.actions[0].type for one in read_automations(None, None)]
    assert kinds == ["pause-deployment", "change-flow-run-state"]
    assert len(read_automations(str(uuid.uuid4()), None)) == 4


def test_a_run_is_dead_only_after_three_heartbeats_by_default():
    """The automation that ends dead runs waits longer than three of Prefect's intervals, and as long as is asked."""
    ends = read_automations(None, None)[-1]
    assert ends.trigger.within.total_seconds() > 3 * get_current_settings().flows.heartbeat_frequency
    assert read_automations(None, None, 90)[-1].trigger.within.total_seconds() == 90


def test_the_automation_that_ends_dead_runs_knows_every_flow_and_state():
    """Each flow of lightmeter is watched, and each state that a flow run may end with counts as its end."""
    trigger = read_automations(None, None)[-1].trigger
    names = {re.search('@flow\\(\\s*name="([^"]+)"', path.read_text())[1] for path in FLOWS.glob("*.py")}
    assert set(trigger.match_related["prefect.resource.name"]) == names
    assert trigger.expect == {"prefect.flow-run.*"}
