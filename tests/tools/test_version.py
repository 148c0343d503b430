"""tools/version.sh: which commit an image says that it was built from."""
import os
import shutil
import subprocess

from conftest import ROOT

ENV = {**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
       "GIT_COMMITTER_EMAIL": "a@b", "GIT_COMMITTER_DATE": "2020-02-29T12:00:00+0000",
       "GIT_CONFIG_GLOBAL": "/dev/null"}


def source(tree):
    return subprocess.run([tree / "tools" / "version.sh"], cwd="/", env=ENV, capture_output=True,
                          text=True, check=True).stdout


def git(tree, *words):
    return subprocess.run(["git", "-C", tree, *words], env=ENV, capture_output=True, text=True,
                          check=True).stdout


def test_commit_and_date(tmp_path):
    """The date is the commit's, so the same commit gives the same image. A changed file can be
    seen."""
    (tmp_path / "tools").mkdir()
    shutil.copy(os.path.join(ROOT, "tools", "version.sh"), tmp_path / "tools")
    assert 'version_commit[] = "unknown"' in source(
        tmp_path
    ) and 'version_date[] = "unknown"' in source(tmp_path)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "--short=10", "HEAD").strip()
    assert f'version_commit[] = "{commit}"' in source(tmp_path)
    assert 'version_date[] = "2020-02-29"' in source(tmp_path)
    with open(tmp_path / "tools" / "version.sh", "a", encoding="ascii") as f:
        f.write("\n")
    assert f'version_commit[] = "{commit}+"' in source(tmp_path)


def test_nothing_is_built_anew_without_a_change(tmp_path):
    """The source keeps its time, so the image is not linked again."""
    path = tmp_path / "version.c"
    command = ["make", "-s", f"B={tmp_path}", str(path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    os.utime(path, (1, 1))
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert os.stat(path).st_mtime == 1
