"""What is not in every session: words that are still being said, outputs that were cut, inputs that are taken back."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.server.harness import LiveServer
from tests.web.scenes import Scene
from tests.web.visitor import Visitor, modules


def glimpse(scene: Scene, text: str, kind: str = "text") -> list[str]:
    """The runtime is about to say this. Gives the sessions that somebody watches."""
    place = (scene.id, scene.grant["epoch"])
    said = {"session": scene.id, "epoch": place[1], "n": scene.voice.n[place], "turn": 1, "kind": kind, "text": text}
    answer = scene.voice.http.post(f"/v1/runners/{scene.voice.id}/glimpses", json={"glimpses": [said]})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["watched"])


def test_a_log_that_grows_too_long_for_a_tab_lets_go_what_is_farthest_from_the_eye(visitor: Visitor) -> None:
    told = visitor.page.evaluate(
        """async (path) => {
          const { Log } = await import(path + "log.js");
          const { HELD_EVENTS } = await import(path + "bounds.js");
          const log = new Log("x");
          const event = (seq) => ({ seq, type: "note", data: { text: "" } });
          for (let seq = 1; seq <= HELD_EVENTS + 1; seq++) {
            log.put([event(seq)]);
            log.need(Math.max(1, seq - 20), seq);
          }
          const newest = [log.at(HELD_EVENTS + 1), log.at(HELD_EVENTS - 100), log.at(1)].map((one) => one !== undefined);
          return [...newest, log.last === HELD_EVENTS + 1];
        }""",
        modules(visitor),
    )
    assert told == [True, True, False, True]


def test_what_is_being_said_is_shown_until_it_is_an_event(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    scene = Scene(server, repo, "glimpsed").work()
    visitor.visit(scene.id)
    expect(visitor.page.locator(".event").last).to_contain_text("begins")
    assert glimpse(scene, "I am going to ") == [scene.id]
    glimpse(scene, "<b>look</b>.")
    expect(visitor.page.locator(".now")).to_have_text("I am going to <b>look</b>.")
    scene.speak(["I am going to look."])
    expect(visitor.page.locator(".event.said .text")).to_have_text("I am going to look.")
    expect(visitor.page.locator(".now")).to_have_count(0)


def test_an_output_that_was_cut_can_be_saved_whole(
    visitor: Visitor, server: LiveServer, repo: Path, tmp_path: Path
) -> None:
    scene = Scene(server, repo, "whole").work()
    whole = b"<script>alert(1)</script>\n" * 3_000
    path = f"/v1/sessions/{scene.id}/outputs/1-7"
    assert scene.voice.http.put(path, content=whole).status_code == 201
    cut = {"output": whole.decode()[:16_000], "cut": True, "bytes": len(whole), "blob": "1-7"}
    scene.say({"type": "tool.result", "id": "t", "ok": True} | cut)
    visitor.visit(scene.id)
    with visitor.page.expect_download() as download:
        visitor.page.get_by_role("button", name="save all").click()
    download.value.save_as(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == whole
    assert download.value.suggested_filename.endswith(".txt")


def test_a_message_that_waits_can_be_taken_back_into_the_box(visitor: Visitor, server: LiveServer, repo: Path) -> None:
    scene = Scene(server, repo, "taken")
    server.post(scene.id, {"type": "user.message", "text": "Never mind."})
    visitor.visit(scene.id)
    line = visitor.page.locator(".underway li").filter(has_text="Never mind.")
    line.get_by_role("button", name="Take back").click()
    expect(line).to_be_hidden()
    expect(visitor.page.get_by_label("Message", exact=True)).to_have_value("Never mind.")
    statuses = {one["text"]: one["status"] for one in server.ok("GET", f"/v1/sessions/{scene.id}/inputs")["items"]}
    assert statuses["Never mind."] == "withdrawn"
