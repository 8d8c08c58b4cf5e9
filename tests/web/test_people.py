"""What people do with the page: sign in, look, answer, say something, and see what became of it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.server.harness import LiveServer, repository, until
from tests.web.line import Line
from tests.web.scenes import RESTORED, Scene, receipt
from tests.web.visitor import Visitor


@pytest.fixture
def up(tmp_path: Path) -> Iterator[dict[str, str]]:
    """`bide up` as somebody starts it, with a runner; what it prints."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BIDE_")}
    words = [sys.executable, "-m", "bide.cli.main"]
    folder = tmp_path / "data"
    process = subprocess.Popen(
        [*words, "up", "--json", "--listen", "127.0.0.1:0"],
        env=env | {"BIDE_HOME": str(folder)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()) | {"home": str(folder)}
    finally:
        process.terminate()
        process.communicate(timeout=30)
        runner = json.loads((folder / "runner.json").read_text())["pid"]
        os.kill(runner, 9)


def test_the_link_of_bide_up_leads_to_a_session_that_asks_and_goes_on_once_it_is_answered(
    chromium: Browser, up: dict[str, str], tmp_path: Path
) -> None:
    context = chromium.new_context()
    page = context.new_page()
    page.goto(up["page"])
    expect(page.get_by_text("Nobody waits for you.")).to_be_visible()
    assert page.url == f"{up['url']}/#/", "no code is left in the address bar"
    task = (
        '@@[{"say":"I looked."},{"ask":{"question":"Tabs or spaces?","options":["tabs","spaces"]}},{"say":"So be it."}]'
    )
    place = repository(tmp_path / "repo")
    words = [
        sys.executable,
        "-m",
        "bide.cli.main",
        "run",
        str(place),
        task,
        "--runtime",
        "scripted",
        "--title",
        "Indent",
        "--json",
    ]
    env = os.environ | {"BIDE_HOME": up["home"]}
    subprocess.run(words, env=env, check=True, capture_output=True)
    page.get_by_label("spaces").check()
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_text("Nobody waits for you.")).to_be_visible()
    page.locator(".session").filter(has_text="Indent").click()
    expect(page.locator(".event.said").filter(has_text="So be it.")).to_be_visible()
    again = context.new_page()
    again.goto(up["page"])
    expect(again.get_by_text("Nobody waits for you.")).to_be_visible()
    context.close()


def test_a_link_that_was_used_says_how_to_get_another(chromium: Browser, server: LiveServer) -> None:
    link = server.ok("POST", "/v1/sign-in/links")["path"]
    with Visitor(chromium, server) as first:
        first.page.goto(server.url + link)
        expect(first.page.locator(".line")).to_have_text("live")
    with Visitor(chromium, server) as second:
        second.may_fail = True
        second.page.goto(server.url + link)
        expect(second.page.get_by_text("was used before")).to_be_visible()
        expect(second.page.locator("code")).to_have_text("bide open")
        assert second.page.url == f"{server.url}/#/"


def test_a_session_shows_the_word_that_the_server_says_in_every_state(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "words")
    visitor.visit(scene.id)
    word = visitor.page.locator(".head .word")
    row = visitor.page.locator(f'.session[href="#/s/{scene.id}"]')
    seen = []

    def agree() -> None:
        now = scene.now()
        expect(word).to_have_text(now["shown"])
        expect(row.locator(".word")).to_have_text(now["shown"])
        expect(visitor.page.locator(".head .next")).to_contain_text(now["next_step"].replace("`", ""))
        seen.append(now["shown"])

    agree()
    scene.grant = scene.voice.claim()
    agree()
    scene.say(
        RESTORED, {"type": "turn.started", "input_ids": [scene.prompt]}, receipt(scene.prompt, "consumed", turn=1)
    )
    agree()
    scene.ask("Which?")
    agree()
    server.post(scene.id, {"type": "user.park"})
    agree()
    checkpoint = {"id": scene.id, "n": 1, "epoch": 1, "root": "x", "turn": 1, "at_n": 7, "consumed": []}
    scene.say({"type": "checkpoint.saved", "checkpoint": checkpoint}, {"type": "session.parked", "checkpoint": 1})
    agree()
    server.post(scene.id, {"type": "user.resume"})
    agree()
    server.post(scene.id, {"type": "user.cancel"})
    agree()
    assert seen == ["queued", "starting", "working", "waiting", "parking", "parked", "resuming", "ended"]


def test_a_new_session_appears_without_a_reload(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    Scene(server, repo, "fresh", title="Just begun")
    expect(visitor.page.locator(".session").filter(has_text="Just begun")).to_be_visible()


def test_of_two_windows_that_answer_one_wins_and_the_other_keeps_its_text_and_learns_who(
    chromium: Browser, visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "two windows").work()
    question = scene.ask("Which of the two?")
    with Visitor(chromium, server) as other:
        other.may_fail = True
        other.sign_in()
        card = other.page.locator(f'.question[data-id="{question}"]')
        card.get_by_label("Your answer").fill("the second, since it is smaller")
        mine = visitor.page.locator(f'.question[data-id="{question}"]')
        mine.get_by_label("a", exact=True).check()
        mine.get_by_role("button", name="Answer").click()
        expect(mine).to_be_hidden()
        card.get_by_role("button", name="Answer").click()
        expect(card.get_by_role("alert")).to_contain_text("Answered by owner from the web")
        expect(card.locator("blockquote")).to_have_text("a")
        expect(card.get_by_label("Your answer")).to_have_value("the second, since it is smaller")
        card.get_by_role("button", name="Send as a message").click()
        expect(card).to_be_hidden()
    texts = [one["text"] for one in server.ok("GET", f"/v1/sessions/{scene.id}/inputs")["items"]]
    assert texts.count("the second, since it is smaller") == 1


def test_a_click_too_many_sends_once(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    scene = Scene(server, repo, "double").work()
    visitor.visit(scene.id)
    visitor.page.get_by_label("Message", exact=True).fill("once")
    visitor.page.get_by_role("button", name="Send").dblclick()
    until(lambda: [one["text"] for one in inputs(scene)].count("once") == 1)
    question = scene.ask("Really?")
    card = visitor.page.locator(f'.question[data-id="{question}"]')
    card.get_by_label("Your answer").fill("yes")
    card.get_by_role("button", name="Answer").dblclick()
    expect(card).to_be_hidden()
    assert [one["type"] for one in inputs(scene)].count("user.answer") == 1
    assert [one["text"] for one in inputs(scene)].count("once") == 1


def inputs(scene: Scene) -> list[dict[str, str]]:
    found: list[dict[str, str]] = scene.server.ok("GET", f"/v1/sessions/{scene.id}/inputs")["items"]
    return found


def test_a_question_outlives_restarts_of_server_and_browser(chromium: Browser, tmp_path: Path, repo: Path) -> None:
    server = LiveServer(tmp_path / "outlived", lease_s=60.0)
    try:
        scene = Scene(server, repo, "outlived").work()
        question = scene.ask("Still there?")
        with Visitor(chromium, server) as visitor:
            visitor.sign_in()
            expect(visitor.page.get_by_text("Still there?")).to_be_visible()
            kept = visitor.context.storage_state()
        server.stop()
        server.start()
        scene.voice.http = server.client(scene.voice.token)
        with Visitor(chromium, server, storage_state=kept) as visitor:
            visitor.page.goto(server.url)
            card = visitor.page.locator(f'.question[data-id="{question}"]')
            card.get_by_label("Your answer").fill("Still here.")
            card.get_by_label("Your answer").press("Enter")
            expect(card).to_be_hidden()
        assert server.ok("GET", f"/v1/questions/{question}")["answer"]["text"] == "Still here."
    finally:
        server.stop()


def test_a_message_shows_its_receipt_from_queued_to_received(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    scene = Scene(server, repo, "receipts").work()
    visitor.visit(scene.id)
    visitor.page.get_by_text("into the turn").click()
    visitor.page.get_by_label("Message", exact=True).fill("Mind the header.")
    visitor.page.keyboard.press("Enter")
    line = visitor.page.locator(".underway li").filter(has_text="Mind the header.")
    expect(line.locator(".receipt")).to_have_text("queued")
    given = next(one for one in inputs(scene) if one["text"] == "Mind the header.")
    message = next(e for e in server.events(scene.id) if e["data"].get("id") == given["id"])
    assert (message["type"], message["data"]["delivery"]) == ("user.message", "steer")
    scene.sync()
    scene.say(receipt(given["id"], "delivered", turn=1, how="steer"))
    expect(line.locator(".receipt")).to_have_text("delivered in turn 1, into the turn")
    scene.say(receipt(given["id"], "consumed", turn=1))
    expect(line).to_be_hidden()
    said = visitor.events().filter(has_text="Mind the header.")
    expect(said.locator(".receipt")).to_have_text(re.compile("^received in turn 1"))


def test_interrupt_park_resume_and_cancel_do_what_they_say_and_cancel_asks_first(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "controls").work()
    visitor.visit(scene.id)
    controls = visitor.page.get_by_role("group", name="What to do with it")
    controls.get_by_role("button", name="Interrupt").click()
    expect(visitor.page.locator(".underway")).to_contain_text("interrupt")
    controls.get_by_role("button", name="Park").click()
    until(lambda: [one["type"] for one in inputs(scene)][-2:] == ["user.interrupt", "user.park"])
    controls.get_by_role("button", name="Cancel…").click()
    visitor.page.get_by_role("button", name="Leave it").click()
    controls.get_by_role("button", name="Cancel…").click()
    assert inputs(scene)[-1]["type"] == "user.park", "nothing was done before it was asked"
    visitor.page.get_by_role("button", name="Cancel it").click()
    until(lambda: inputs(scene)[-1]["type"] == "user.cancel")


def test_a_draft_survives_reload_another_session_a_500_and_a_cut_and_is_sent_once(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    visitor.may_fail = True
    scene, other = Scene(server, repo, "drafts").work(), Scene(server, repo, "others")
    page, text = visitor.page, "All that I have to say about it. " * 60
    box = page.get_by_label("Message", exact=True)
    visitor.visit(scene.id)
    box.fill(text.strip())
    page.reload()
    expect(box).to_have_value(text.strip())
    visitor.visit(other.id)
    expect(box).to_have_value("")
    visitor.visit(scene.id)
    expect(box).to_have_value(text.strip())

    def break_it(route: Route) -> None:
        route.fulfill(status=500, body="<html>Bad gateway</html>", content_type="text/html")

    page.route("**/events", break_it)
    page.get_by_role("button", name="Send").click()
    sent = page.locator(".underway li").filter(has_text="All that I have to say")
    expect(sent).to_contain_text("not known whether it arrived")
    page.reload()
    expect(sent).to_contain_text("not known whether it arrived")
    page.unroute("**/events")
    sent.get_by_role("button", name="Send again").click()
    expect(sent.locator(".receipt")).to_have_text("queued")
    assert [one["text"] for one in inputs(scene)].count(text.strip()) == 1
    expect(box).to_have_value("")


def test_a_lost_answer_to_a_message_is_said_and_settled_by_the_log_once_that_is_heard_again(
    chromium: Browser, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "lost answer").work()
    with Line(server.url) as line, Visitor(chromium, server, line.url) as visitor:
        visitor.may_fail = True
        visitor.sign_in()
        visitor.visit(scene.id)
        visitor.page.get_by_label("Message", exact=True).fill("It arrived.")
        line.deafen()
        visitor.page.keyboard.press("Enter")
        sent = visitor.page.locator(".underway li").filter(has_text="It arrived.")
        expect(sent.locator(".receipt")).to_have_text("not known whether it arrived")
        until(lambda: [one["text"] for one in inputs(scene)].count("It arrived.") == 1)
        line.go()
        expect(sent.locator(".receipt")).to_have_text("queued")
        assert [one["text"] for one in inputs(scene)].count("It arrived.") == 1


def test_what_arrived_although_the_answer_was_an_error_is_not_sent_twice(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    visitor.may_fail = True
    scene = Scene(server, repo, "error").work()
    question = scene.ask("Which?")
    card = visitor.page.locator(f'.question[data-id="{question}"]')

    def spoil(route: Route) -> None:
        route.fetch()
        route.fulfill(status=502, body="Bad gateway", content_type="text/plain")

    visitor.page.route("**/events", spoil, times=1)
    card.get_by_label("Your answer").fill("the first")
    card.get_by_role("button", name="Answer").click()
    expect(card).to_contain_text("not known whether it arrived")
    card.get_by_role("button", name="Send again").click()
    expect(card.locator(".done")).to_have_text("Answered.")
    assert [one["type"] for one in inputs(scene)].count("user.answer") == 1


def test_a_refused_message_is_given_back(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    visitor.may_fail = True
    scene = Scene(server, repo, "refused", settings={"message_bytes": 20}, prompt="short")
    visitor.visit(scene.id)
    box = visitor.page.get_by_label("Message", exact=True)
    box.fill("This one is longer than it may be.")
    box.press("Enter")
    sent = visitor.page.locator('.underway li[data-status="refused"]')
    expect(sent).to_contain_text("bytes")
    sent.get_by_role("button", name="Back into the box").click()
    expect(box).to_have_value("This one is longer than it may be.")


def test_a_session_that_is_deleted_says_so_where_it_is_open(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    visitor.may_fail = True  # it is asked for once more
    scene = Scene(server, repo, "deleted")
    visitor.visit(scene.id)
    server.post(scene.id, {"type": "user.cancel"})
    expect(visitor.page.locator(".head .word")).to_have_text("ended")
    server.ok("DELETE", f"/v1/sessions/{scene.id}")
    expect(visitor.page.get_by_role("alert")).to_contain_text(f"There is no session {scene.id}.")
    expect(visitor.page.locator(".session").filter(has_text="deleted")).to_have_count(0)


def test_a_page_that_was_signed_out_meanwhile_says_so_and_keeps_what_was_typed(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    visitor.may_fail = True
    scene = Scene(server, repo, "signed out")
    visitor.visit(scene.id)
    box = visitor.page.get_by_label("Message", exact=True)
    box.fill("Half a sentence")
    other = visitor.open()  # the same browser
    other.goto(server.url)
    other.get_by_role("button", name="Sign out").click()
    expect(other.get_by_text("This browser is not signed in.")).to_be_visible()
    box.press("Enter")
    expect(visitor.page.get_by_text("This browser is not signed in.")).to_be_visible()
    visitor.sign_in()
    visitor.visit(scene.id)
    sent = visitor.page.locator(".underway li").filter(has_text="Half a sentence")
    sent.get_by_role("button", name="Send again").click()
    expect(sent.locator(".receipt")).to_have_text("queued")
    assert [one["text"] for one in inputs(scene)].count("Half a sentence") == 1


def test_enter_that_ends_the_composing_of_a_character_sends_nothing(
    visitor: Visitor, server: LiveServer, repo: Path
) -> None:
    scene = Scene(server, repo, "composing").work()
    question = scene.ask("日本語?")
    visitor.visit(scene.id)
    card = visitor.page.locator(f'.question[data-id="{question}"]')
    devtools = visitor.context.new_cdp_session(visitor.page)
    before = len(inputs(scene))
    for box in (card.get_by_label("Your answer"), visitor.page.get_by_label("Message", exact=True)):
        box.focus()
        devtools.send("Input.imeSetComposition", {"text": "にほん", "selectionStart": 3, "selectionEnd": 3})
        enter = {"key": "Process", "code": "Enter", "windowsVirtualKeyCode": 229}
        devtools.send("Input.dispatchKeyEvent", {"type": "rawKeyDown", **enter})
        devtools.send("Input.insertText", {"text": "日本"})
        devtools.send("Input.dispatchKeyEvent", {"type": "keyUp", **enter})
        expect(box).to_have_value("日本")
        assert len(inputs(scene)) == before
        box.press("Enter")
        until(lambda: len(inputs(scene)) == before + 1)  # noqa: B023 - asked before the next round
        before += 1


def test_a_question_is_answered_by_keys_alone(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    scene = Scene(server, repo, "keys").work()
    question = scene.ask("By keys?")
    card = visitor.page.locator(f'.question[data-id="{question}"]')
    expect(card).to_be_visible()
    visitor.page.locator("body").press("Tab")
    for _ in range(200):
        visitor.page.keyboard.press("Tab")
        if card.locator("input:focus").count():
            break
    visitor.page.keyboard.press("Space")
    while not card.locator("button.main:focus").count():
        visitor.page.keyboard.press("Tab")
    visitor.page.keyboard.press("Enter")
    expect(card).to_be_hidden()
    assert server.ok("GET", f"/v1/questions/{question}")["answer"]["choices"] == ["a"]
