"""What is told where there is no sandbox, and what one sees of the course."""

import os
import site
import subprocess
import sys
import venv

from graded import needs_sandbox
from lessons_lib.paths import ROOT


def test_without_bubblewrap_it_is_said_what_to_install(tmp_path):
    code = "from lessons_grading import confinement; print(confinement.missing())"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sudo apt-get install bubblewrap" in ran.stdout


@needs_sandbox
def test_a_libseccomp_that_knows_too_few_calls_is_named():
    code = """if True:
        from lessons_grading import confinement, system_calls
        system_calls.REFUSED["what comes one day"] = "call_of_one_day"
        print(confinement.missing())"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "libseccomp is too old: it cannot refuse call_of_one_day" in ran.stdout


@needs_sandbox
def test_root_without_other_users_is_refused():
    """As in a container with a single user: root could not be left."""
    code = "from lessons_grading import confinement; print(confinement.missing())"
    alone = ["bwrap", "--unshare-user", "--uid", "0", "--gid", "0", "--dev-bind", "/", "/"]
    ran = subprocess.run(
        [*alone, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "Grade as an ordinary user." in ran.stdout


@needs_sandbox
def test_an_environment_in_tmp_is_seen_in_the_sandbox(tmp_path):
    """The sandbox has its own folder /tmp. What is around the environment is open there."""
    venv.create(tmp_path / "env")
    look = """if True:
        import os, sys
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        print(open(sys.prefix + "/pyvenv.cfg").read())"""
    code = f"""if True:
        import subprocess, sys
        from lessons_grading import confinement
        with confinement.command_line(1 << 20) as (words, descriptors):
            command = [*words, sys.executable, "-c", {look!r}]
            subprocess.run(command, pass_fds=descriptors, check=True)"""
    path = os.pathsep.join([str(ROOT), *site.getsitepackages()])
    ran = subprocess.run(
        [tmp_path / "env/bin/python", "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert tmp_path.is_relative_to("/tmp") and ran.stderr == ""
    assert "version = " in ran.stdout
