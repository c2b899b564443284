"""The automations that lightmeter brings for Prefect, read as Prefect reads them."""

from __future__ import annotations

import uuid

from lightmeter.prefect_integration.automations import read_automations
from lightmeter.prefect_integration.events import EVENTS


def test_automations_are_valid_and_expect_events_that_exist():
    """Prefect accepts all automations, each expects events that flows send, and the ids are those of the user."""
    block, deployment = str(uuid.uuid4()), str(uuid.uuid4())
    found = read_automations(block, deployment)
    assert len({one.name for one in found}) == len(found) == 4
    for one in found:
        assert one.trigger.expect <= {*EVENTS}
    actions = [action for one in found for action in one.actions]
    assert {str(action.block_document_id) for action in actions if action.type == "send-notification"} == {block}
    paused = [action for action in actions if action.type == "pause-deployment"]
    assert [action.deployment_id and str(action.deployment_id) for action in paused] == [None, deployment]


def test_automations_without_their_block_or_deployment_are_left_out():
    """Without a notification block and a deployment, only the automation that pauses a failed one remains."""
    assert [one.actions[0].type for one in read_automations(None, None)] == ["pause-deployment"]
    assert len(read_automations(str(uuid.uuid4()), None)) == 3
