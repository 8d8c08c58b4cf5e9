"""What people would lose if our own git calls did what a repository says, or hid what git says."""

from __future__ import annotations

import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide.core.refusals import Refused
from bide.runner import git as ours
from bide.runner import procfs
from tests.runner.sessions import poll
from tests.runner.shell_parts import GIT, git, repository


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "private.gitconfig"


def cloned(source: str, at: Path, config: Path, branch: str = "") -> Path:
    ours.clone(source, branch, at, config, threading.Event())
    return at


class _Backend(http.server.CGIHTTPRequestHandler):
    """`git http-backend` as the CGI program that it is, below /git."""

    have_fork = False

    def is_cgi(self) -> bool:
        return self.path.startswith("/git")

    def run_cgi(self) -> None:
        path, _, query = self.path.removeprefix("/git").partition("?")
        length = int(self.headers.get("content-length") or 0)
        env = GIT | {
            "GIT_PROJECT_ROOT": os.environ["BIDE_TEST_SERVED"], "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
            "QUERY_STRING": query, "REQUEST_METHOD": self.command, "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
            "CONTENT_TYPE": self.headers.get("content-type", ""), "CONTENT_LENGTH": str(length),
            "HTTP_GIT_PROTOCOL": self.headers.get("git-protocol", ""),
        }  # fmt: skip
        done = subprocess.run(
            ["git", "http-backend"], env=env, input=self.rfile.read(length), capture_output=True, check=False
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        lines = [line.split(": ", 1) for line in head.decode().splitlines()]
        status = next((value.split()[0] for name, value in lines if name == "Status"), "200")
        self.send_response_only(int(status))
        for name, value in lines:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("BIDE_TEST_SERVED", str(tmp_path / "served"))
    git(tmp_path, "clone", "-q", "--bare", str(repository(tmp_path / "source")), str(tmp_path / "served" / "app.git"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Backend)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/git/app.git"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("owner", [0, 12345], ids=["ours", "of another user"])
def test_a_local_repository_is_cloned_whoever_owns_it(tmp_path: Path, config: Path, owner: int) -> None:
    source = repository(tmp_path / "source")
    if owner:
        if os.geteuid() != 0:
            pytest.skip("only root can give files away")
        for path in (source, *source.rglob("*")):
            os.chown(path, owner, owner)
    at = cloned(str(source), tmp_path / "w", config)
    assert (at / "app.py").read_text() == "print('one')\n"
    assert not (at / "side.py").exists()
    inodes = {path.stat().st_ino for path in source.rglob("*")}
    assert not inodes & {path.stat().st_ino for path in at.rglob("*")}, "a hard link ties the two together"


def test_a_repository_behind_a_url_is_cloned_with_its_branch(tmp_path: Path, config: Path, served: str) -> None:
    at = cloned(served, tmp_path / "w", config, "side")
    assert (at / "side.py").exists()
    look = ours.look(at, "/workspace", served)
    assert (look.branch, look.head) == ("side", git(tmp_path / "source", "rev-parse", "side"))
    assert (look.repository, look.git_root, look.cwd) == (served, "/workspace", "/workspace")


def test_a_file_url_and_a_tag_work_too(tmp_path: Path, config: Path) -> None:
    source = repository(tmp_path / "source")
    git(source, "tag", "v1", "side")
    at = cloned(f"file://{source}", tmp_path / "w", config, "v1")
    look = ours.look(at, "/workspace", "")
    assert (look.branch, look.head) == ("", git(source, "rev-parse", "side"))


def test_an_empty_repository_is_a_workspace_to_begin_in(tmp_path: Path, config: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "trunk", "empty")
    at = cloned(str(tmp_path / "empty"), tmp_path / "w", config)
    look = ours.look(at, "/workspace", "")
    assert (look.branch, look.head, look.git_root) == ("trunk", "", "/workspace")


@pytest.mark.parametrize(
    ("source", "branch", "words"),
    [
        ("/nonexistent/app", "", "repository '/nonexistent/app' does not exist"),
        ("{here}/source", "nowhere", "Remote branch nowhere not found"),
        ("{here}/source", "--upload-pack=touch {here}/canary", "not found"),
        ("--upload-pack=touch {here}/canary", "", "/canary' does not exist"),
        ("ext::touch {here}/canary", "", "transport 'ext' not allowed"),
        ("http://127.0.0.1:9/app.git", "", "unable to access"),
        ("{here}/plain", "", "does not exist"),
    ],
)
def test_who_names_a_wrong_repository_reads_gits_own_words(
    tmp_path: Path, config: Path, source: str, branch: str, words: str
) -> None:
    repository(tmp_path / "source")
    (tmp_path / "plain").mkdir()
    with pytest.raises(Refused) as no:
        cloned(source.format(here=tmp_path), tmp_path / "w", config, branch.format(here=tmp_path))
    assert no.value.code == "no_repository"
    assert words in no.value.sentence
    assert not (tmp_path / "canary").exists()


def plant(at: Path, canary: Path) -> None:
    """Everything in a repository that makes git run a program; each would write a line."""
    run = f"sh -c 'echo $0 $* >>{canary}' "
    hooks = at / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-checkout", "reference-transaction", "post-index-change", "fsmonitor-watchman", "pre-auto-gc"):
        (hooks / hook).write_text(f"#!/bin/sh\necho {hook} >>{canary}\n")
        (hooks / hook).chmod(0o755)
    (at / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (at / "more.config").write_text(f'[core]\n\tpager = "{run}included"\n\tfsmonitor = "{run}included"\n')
    for name, value in {
        "core.fsmonitor": f"{run}fsmonitor", "core.sshCommand": f"{run}ssh", "core.pager": f"{run}pager",
        "core.editor": f"{run}editor", "core.hooksPath": str(hooks), "core.alternateRefsCommand": f"{run}refs",
        "filter.evil.smudge": f"{run}smudge", "filter.evil.clean": f"{run}clean", "filter.evil.process": f"{run}proc",
        "diff.external": f"{run}diff", "credential.helper": f"!{run}credential", "include.path": "../more.config",
        "uploadpack.packObjectsHook": f"{run}pack", "extensions.partialClone": "origin", "gpg.program": f"{run}gpg",
        "remote.origin.uploadpack": f"{run}uploadpack", "remote.origin.promisor": "true", "alias.rev-parse": f"!{run}a",
    }.items():  # fmt: skip
        git(at, "config", name, value)


def test_our_git_calls_run_nothing_that_a_workspace_planted(tmp_path: Path, config: Path) -> None:
    source, canary = repository(tmp_path / "source"), tmp_path / "canary"
    head = git(source, "rev-parse", "HEAD")
    at = cloned(str(source), tmp_path / "w", config)
    for planted in (source, at):
        plant(planted, canary)
    subprocess.run(["git", "-c", "safe.directory=*", "status"], cwd=at, env=GIT, capture_output=True, check=False)
    assert canary.exists(), "the plants do not work: this test would prove nothing"
    canary.unlink()
    assert ours.look(at, "/workspace", "").head == head
    git_objects = [path for path in (at / ".git" / "objects").rglob("*") if path.is_file()]
    for path in git_objects:  # nothing of the history is there, and a promisor remote offers to bring it
        path.unlink()
    assert ours.look(at, "/workspace", "").branch == "main"
    cloned(str(source), tmp_path / "again", config)
    assert not canary.exists(), canary.read_text()


def test_a_template_of_the_machine_gets_into_no_workspace(tmp_path: Path, config: Path) -> None:
    at = cloned(str(repository(tmp_path / "source")), tmp_path / "w", config)
    assert not (at / ".git" / "hooks").exists()


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "rubbish", "a plain file"])
def test_a_workspace_without_a_repository_is_not_shown_as_the_one_above_it(
    tmp_path: Path, config: Path, left: str
) -> None:
    at = repository(tmp_path / "source") / "runner" / "session"
    at.mkdir(parents=True)
    if left == "an empty folder":
        (at / ".git").mkdir()
    elif left == "a plain file":
        (at / ".git").write_text("gitdir: elsewhere")
    elif left == "rubbish":
        shutil.copytree(tmp_path / "source" / ".git", at / ".git")
        (at / ".git" / "HEAD").write_bytes(b"\xff\0 rubbish")
    look = ours.look(at, "/workspace", "")
    assert (look.branch, look.head) == ("", "")


def test_git_that_is_not_installed_is_said_in_words(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = repository(tmp_path / "source")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="git is not installed on this runner"):
        cloned(str(source), tmp_path / "w", config)


def test_a_rebase_of_many_commits_never_meets_a_lock_of_ours(tmp_path: Path, config: Path) -> None:
    at = repository(tmp_path / "work")
    git(at, "checkout", "-q", "side")
    for n in range(25):
        (at / f"{n}.txt").write_text(str(n))
        git(at, "add", ".")
        git(at, "commit", "-q", "-m", str(n))
    git(at, "checkout", "-q", "main")
    git(at, "commit", "-q", "--allow-empty", "-m", "moved on")
    looks = 0
    argv = ["git", "-c", "safe.directory=*", "rebase", "-q", "--force-rebase", "--exec", "true", "main", "side"]
    with subprocess.Popen(argv, cwd=at, env=GIT, stderr=subprocess.PIPE) as rebase:
        while rebase.poll() is None:
            ours.look(at, "/workspace", "repo")
            looks += 1
        assert rebase.stderr is not None
        assert rebase.returncode == 0, rebase.stderr.read()
    assert looks > 3
    assert ours.look(at, "/workspace", "repo").branch == "side"


def test_a_branch_that_rests_in_gits_list_is_told_with_its_head(tmp_path: Path) -> None:
    at = repository(tmp_path / "work")
    git(at, "checkout", "-q", "-b", "topic/of main".replace(" ", "-"))
    git(at, "tag", "-a", "v1", "-m", "one")
    git(at, "pack-refs", "--all")
    assert not (at / ".git" / "refs" / "heads" / "topic").exists()
    look = ours.look(at, "/workspace", "")
    assert (look.branch, look.head) == ("topic/of-main", git(at, "rev-parse", "HEAD"))


@pytest.mark.parametrize(
    "way", ["gitdir", "a linked folder", "a linked HEAD", "linked branches", "a name", "two names"]
)
def test_a_workspace_that_leads_to_another_repository_tells_nothing_of_it(tmp_path: Path, way: str) -> None:
    other, at = repository(tmp_path / "other"), repository(tmp_path / "work")
    git(other, "checkout", "-q", "-b", "private")
    git(other, "commit", "-q", "--allow-empty", "-m", "secret")
    if way in ("gitdir", "a linked folder"):
        shutil.rmtree(at / ".git")
        if way == "gitdir":
            (at / ".git").write_text(f"gitdir: {other}/.git\n")
        else:
            (at / ".git").symlink_to(other / ".git")
    elif way == "a linked HEAD":
        (at / ".git" / "HEAD").unlink()
        (at / ".git" / "HEAD").symlink_to(other / ".git" / "HEAD")
    elif way == "linked branches":
        shutil.rmtree(at / ".git" / "refs" / "heads")
        (at / ".git" / "refs" / "heads").symlink_to(other / ".git" / "refs" / "heads")
        (at / ".git" / "HEAD").write_text("ref: refs/heads/private\n")
    else:
        up = "refs/../../../other/.git/refs/heads/private"
        (at / ".git" / "HEAD").write_text(f"ref: {up}\n" if way == "a name" else f"ref: refs/heads/main\n{up}\n")
    look = ours.look(at, "/workspace", "")
    assert look.head == ""
    assert look.branch in ("", "private" if way == "linked branches" else "")


@pytest.mark.parametrize("name", ["HEAD", "config", "packed-refs", "refs/heads/main"])
def test_a_pipe_in_a_repository_holds_up_no_save(tmp_path: Path, name: str) -> None:
    at = repository(tmp_path / "work")
    (at / ".git" / name).unlink(missing_ok=True)
    os.mkfifo(at / ".git" / name)
    found: list[str] = []
    looker = threading.Thread(target=lambda: found.append(ours.look(at, "/workspace", "").branch), daemon=True)
    looker.start()
    looker.join(20)
    assert found == ["" if name == "HEAD" else "main"]


def test_a_clone_that_nobody_waits_for_any_more_ends_with_all_that_git_began(
    tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = tmp_path / "bin" / "git"  # as git does while the other end of a line says nothing, whoever of it waits
    hangs.parent.mkdir()
    hangs.write_text("#!/bin/sh\nsleep 300 & echo $! >$HOME/below; wait\n")
    hangs.chmod(0o755)
    monkeypatch.setenv("PATH", f"{hangs.parent}:{os.environ['PATH']}")
    unwanted, said = threading.Event(), list[ours.Unwanted]()

    def work() -> None:
        try:
            ours.clone("https://example.invalid/app", "", tmp_path / "app", config, unwanted)
        except ours.Unwanted as error:
            said.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    poll(lambda: (config.parent / "below").exists() and (config.parent / "below").read_text().strip())
    below = int((config.parent / "below").read_text())
    unwanted.set()
    thread.join(5)
    assert len(said) == 1
    poll(lambda: not procfs.alive(procfs.ident(below)))
