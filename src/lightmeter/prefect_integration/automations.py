"""Program that creates the automations in `automations.json` in Prefect: notify, pause a deployment, end dead runs.

A dead run is a flow run whose process or worker died.

`python -m lightmeter.prefect_integration.automations --notify slack-webhook/team --pause analyze/nightly`
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Final

import click
from prefect.client.orchestration import get_client
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture
from prefect.exceptions import ObjectNotFound

_FILE: Final = Path(__file__).with_name("automations.json")
_NOTIFICATION_BLOCK: Final = "00000000-0000-0000-0000-000000000001"
"""Placeholder in the file for the id of the notification block, which differs between Prefect servers."""

_DEPLOYMENT: Final = "00000000-0000-0000-0000-000000000002"
"""Placeholder in the file for the id of the deployment to pause."""

DEFAULT_CRASHED_AFTER_S: Final = 600
"""If a flow run sends no heartbeat for this many seconds, it is marked as crashed.

The value is three of Prefect's intervals of 180 s, and some more.
"""

_MIN_CRASHED_AFTER_S: Final = 60
"""Minimum value of `--crashed-after`, in seconds: Prefect sends heartbeats at most every 30 s."""


def read_automations(
    notification_block_id: str | None, deployment_id: str | None, crashed_after_s: int = DEFAULT_CRASHED_AFTER_S
) -> list[AutomationCore]:
    """Return the automations in `automations.json` with the given ids filled in. Leave out those whose id is None.

    Args:
        notification_block_id: Id of the block that sends notifications; None leaves out automations that notify.
        deployment_id: Id of the deployment that a low budget pauses; None leaves out automations that pause it.
        crashed_after_s: Seconds without a heartbeat after which a flow run is marked as crashed.
    """
    text = _FILE.read_text(encoding="utf-8")
    for placeholder, known in ((_NOTIFICATION_BLOCK, notification_block_id), (_DEPLOYMENT, deployment_id)):
        text = text.replace(placeholder, known or placeholder)
    read = (json.dumps(one) for one in json.loads(text)["automations"])
    automations = [
        AutomationCore.model_validate_json(one)
        for one in read
        if _NOTIFICATION_BLOCK not in one and _DEPLOYMENT not in one
    ]
    for automation in automations:
        if isinstance(automation.trigger, EventTrigger) and automation.trigger.posture is Posture.Proactive:
            automation.trigger.within = timedelta(seconds=crashed_after_s)
    return automations


async def create_automations(
    notify: str | None, pause: str | None, crashed_after_s: int = DEFAULT_CRASHED_AFTER_S
) -> list[str]:
    """Create the automations on the Prefect server, and return their names. Replace automations of the same names.

    Args:
        notify: Notification block as `TYPE/NAME`, such as `slack-webhook/team`. None creates no automation that
            notifies.
        pause: Deployment that a low budget pauses, as `FLOW/NAME`. None creates no automation for a low budget.
        crashed_after_s: Seconds without a heartbeat after which a flow run is marked as crashed.

    Raises:
        ObjectNotFound: The server has no such block or deployment.
    """
    async with get_client() as client:
        block_id = deployment_id = None
        if notify is not None:
            kind, _, name = notify.partition("/")
            block_id = str((await client.read_block_document_by_name(name, kind)).id)
        if pause is not None:
            deployment_id = str((await client.read_deployment_by_name(pause)).id)
        automations = read_automations(block_id, deployment_id, crashed_after_s)
        for automation in automations:
            for former in await client.read_automations_by_name(automation.name):
                await client.delete_automation(former.id)
            await client.create_automation(automation)
    return [automation.name for automation in automations]


@click.command()
@click.option(
    "--notify", metavar="TYPE/NAME", help="Prefect block that sends notifications, such as slack-webhook/team."
)
@click.option("--pause", metavar="FLOW/NAME", help="Deployment to pause when the balance or the key's budget is low.")
@click.option(
    "--crashed-after",
    metavar="SECONDS",
    type=click.IntRange(min=_MIN_CRASHED_AFTER_S),
    default=DEFAULT_CRASHED_AFTER_S,
    show_default=True,
    help="Mark a flow run as crashed after so long without a heartbeat: 3 times PREFECT_FLOWS_HEARTBEAT_FREQUENCY.",
)
def main(notify: str | None, pause: str | None, crashed_after: int) -> None:
    """Create lightmeter's automations in Prefect. Replace automations of the same names.

    A deployment whose run stops at a limit, loses an answer, or is refused by a person is always paused. A flow run
    whose process or worker died is always marked as crashed, so that the next one can start. Without --notify, nobody
    is notified.
    """
    try:
        names = asyncio.run(create_automations(notify, pause, crashed_after))
    except ObjectNotFound as error:
        raise click.ClickException("Prefect has no such block or deployment: see `prefect block ls`.") from error
    for name in names:
        click.echo(name)


if __name__ == "__main__":
    main()
