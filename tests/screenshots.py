"""Write the README's pictures of `lightmeter ui` into `.docs/screenshots`: run with `make screenshots`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Page, expect, sync_playwright

import lightmeter as lm

ROOT = Path(__file__).parents[1]
TARGET = ROOT / ".docs" / "screenshots"
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu"]
SIZE = {"width": 1280, "height": 860}


def make_run(folder: Path) -> None:
    """Analyze the sample data with the embedded service."""
    os.environ["LIGHTMETER_CACHE_DIR"] = str(folder / "cache")
    features = ["tags", "colors", "nsfw", "faces", "texts", "brands", "descriptions"]
    plan = lm.plan("data/manifest.csv", features=features, budget=100)
    lm.run(plan, folder / "out")


@contextmanager
def served(folder: Path):
    """Run `lightmeter ui` and give its address."""
    command = [sys.executable, "-m", "lightmeter", "ui", str(folder / "out"), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"http\S+", process.stdout.readline())
        assert match is not None
        yield match[0]
        process.terminate()


HIDE_FOLDERS = """(folders) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode())
    for (const folder of folders) texts.currentNode.data = texts.currentNode.data.replaceAll(folder, "");
}"""


def take(page: Page, name: str, folder: Path) -> None:
    """Take a picture once the thumbnails are shown, without the names of this machine's folders."""
    page.wait_for_timeout(1500)
    page.evaluate(HIDE_FOLDERS, [f"{ROOT}/", f"{folder}/"])
    page.screenshot(path=TARGET / f"{name}.png")


def main() -> None:
    """Make a run, serve it, and take a picture of each view."""
    os.chdir(ROOT)
    TARGET.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as name, sync_playwright() as driver:
        make_run(Path(name))
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        with served(Path(name)) as url:
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{url}#explorer")
            expect(page.locator(".lm-card img")).not_to_have_count(0, timeout=60_000)
            take(page, "gallery", Path(name))
            page.locator(".lm-card", has_text="cameras.jpg").locator(".lm-open").click()
            expect(page.get_by_role("dialog").locator("svg").first).to_be_visible(timeout=60_000)
            take(page, "details", Path(name))
            for view in ("planner", "run"):
                page.goto(f"{url}#{view}")
                page.reload()
                expect(page.locator("main h2, main h3, main select").first).to_be_visible(timeout=60_000)
                take(page, view, Path(name))
        browser.close()


if __name__ == "__main__":
    main()
