"""A story: one account, one manifest, one output folder, and what is done to the run in it."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.kills import judge
from tests.e2e.kills.harness import KILLED, Counterpart, Ended, Fault, Nursery, Running

ROWS = 12
AT_RISK = 3
AT_ONCE = ("--batch-size", "1")
POLLED = ("--batch-size", "3")
"""Two ways an answer comes: a single image at once, several by polling."""

OPTIONS = ("--yes", "--no-precheck", "--features", "tags", "--backends", "clarifai", "--max-concurrency", "4")
STEPS = ("fdatasync", "pwrite64", "sendto", "recvfrom", "connect", "rename")
"""System calls between which a run stands still: a journal's commit, its pages, words to and from the service, a
connection, a table that takes its place."""

NEVER = 65_535
"""strace counts no further."""

MAX_STARTS = 6


@dataclass
class World:
    """Where stories take place."""

    counterpart: Counterpart
    nursery: Nursery
    folder: Path
    stories: int = 0

    def story(self, *options: object, rows: int = ROWS, key: str | None = None, **rules: Any) -> Story:
        """A new one, with the account of `key`, or its own one served by these rules."""
        self.stories += 1
        folder = self.folder / f"story{self.stories}"
        folder.mkdir()
        (folder / "tmp").mkdir()
        manifest = folder / "manifest.txt"
        manifest.write_text("".join(f"http://pictures.test/{self.stories}/{row}.jpg\n" for row in range(rows)))
        return Story(self, folder, manifest, key or self.counterpart.account(**rules), tuple(map(str, options)))


@dataclass
class Story:
    """One run, from its first start to its last."""

    world: World
    folder: Path
    manifest: Path
    key: str
    options: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> Path:
        """The output folder."""
        return self.folder / "out"

    def start(self, verb: str = "run", *more: object, nursery: Nursery | None = None, **how: Any) -> Running:
        """Start `run` or `resume` in a process of its own, in another nursery than the world's if one is given."""
        args = {
            "run": ("run", self.manifest, "--out", self.out, "--json", *OPTIONS, *self.options),
            "statement": ("statement", self.out),
            "rebuild": ("rebuild", self.out),
            "plan": ("plan", self.manifest, "--json", *OPTIONS[1:], *self.options),
        }.get(verb, (verb, self.out, "--json"))
        at = ("--base-url", self.world.counterpart.base_url) if verb in {"run", "resume", "plan"} else ()
        env = {
            "LIGHTMETER_API_KEY": self.key,
            "LIGHTMETER_CHARGES_FINAL_S": "0.3",  # the counterpart is done with anything in half of that
            "LIGHTMETER_STATE_DIR": str(self.world.folder / "state"),
            "TMPDIR": str(self.folder / "tmp"),
            **self.env,
        }
        return (nursery or self.world.nursery).start(*args, *at, *more, env=env, **how)

    def run(self, verb: str = "run", *more: object, **how: Any) -> Ended:
        """Start it and wait for its end."""
        return self.start(verb, *more, **how).wait()

    def ledger(self) -> dict[str, Any]:
        """The counterpart's books on this account."""
        return self.world.counterpart.ledger(self.key)

    def go_on(self) -> Ended:
        """What a user types after a crash: `resume`, or `run` again if there is nothing to resume yet."""
        return self.run("resume" if (self.out / "journal.sqlite").exists() else "run")

    def judged(self, ended: Ended, before: judge.Memory | None = None) -> tuple[judge.Memory, int]:
        """Hold everything against the ledger; returns the journal and the credits lost."""
        assert ended.code in {0, 1, 3}, (ended.code, ended.err)
        return judge.whole(self.out, ended.json, before, self.ledger())


def calls_of(world: World, call: str, *options: str) -> int:
    """How often the busiest thread of an undisturbed run makes this call."""
    ended = world.story(*options).run(fault=Fault(call, NEVER))
    assert ended.code == 0, ended.err
    return world.nursery.most_calls()


def seconds_of(world: World, *options: str) -> float:
    """How long an undisturbed run takes."""
    began = time.monotonic()
    assert world.story(*options).run().code == 0
    return time.monotonic() - began


def killed_at(world: World, fault: Fault, *options: str) -> int | None:
    """Kill a run at one step, go on, judge; returns the credits lost, None if it ended before it came to that step."""
    story = world.story("--max-at-risk", AT_RISK, *options)
    killed = story.run(fault=fault)
    if killed.code != KILLED:
        story.judged(killed)
        return None
    before = judge.remember(story.out)
    ended = story.go_on()
    _, lost = story.judged(ended, before)
    assert lost <= AT_RISK
    nothing_more_is_sent(story, ended)
    return lost


def killed_again_and_again(world: World, chance: random.Random, longest_s: float, *options: str, **rules: Any) -> int:
    """Kill every start at a random instant until one ends before it; judge after each; returns how many kills."""
    story = world.story("--max-at-risk", AT_RISK, *options, **rules)
    before, kills = None, 0
    while kills < MAX_STARTS:
        running = story.start("resume" if before is not None else "run")
        time.sleep(chance.uniform(0.2, 1) * longest_s)
        running.signal(signal.SIGKILL)
        ended = running.wait()
        if ended.code != KILLED:
            break
        kills += 1
        now = judge.remember(story.out)
        if now is not None:
            before_ok = {} if before is None else before.ok()
            assert before_ok.items() <= now.ok().items()
            judge.nothing_twice(now, story.ledger())
        before = now
    else:
        ended = story.go_on()
    _, lost = story.judged(ended, before)
    assert lost <= AT_RISK * kills + judge.spoiled(story.ledger())
    if "faults" not in rules:
        nothing_more_is_sent(story, ended)
    return kills


def nothing_more_is_sent(story: Story, ended: Ended) -> None:
    """Resuming a run that has ended sends no POST, and says the same again."""
    posts = len(story.ledger()["posts"])
    again = story.run("resume")
    assert len(story.ledger()["posts"]) == posts
    assert (again.code, *(again.json[name] for name in judge.STATUSES)) == (
        ended.code,
        *(ended.json[name] for name in judge.STATUSES),
    )
