"""An image that does what ``apache/kafka`` does, for machines that cannot pull it.

A minimal Debian with a JRE and ``nc``, from the mirror that this machine's apt uses; Kafka's jars,
from the cache of :class:`kafkaclient.testing.LocalCluster`; and ``launch.sh`` as the entrypoint.
Needs root and ``debootstrap``, half a minute and 500 MB of disk for as long as it is in use.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from kafkaclient.testing.jars import JarCache, read_lock
from kafkaclient.testing.settings import DEFAULT_VERSION

NAME = f"kafkaclient-stand-in:{DEFAULT_VERSION}"
PACKAGES = "default-jre-headless,netcat-openbsd"
LAUNCH = Path(__file__).with_name("launch.sh")
DIRECTORIES = ("etc/kafka/docker", "mnt/shared/config", "opt/kafka/config", "opt/kafka/libs")


def build() -> str:
    """Make the image; returns its name. Raises SystemExit that says what is missing."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise SystemExit(f"making {NAME} needs root and debootstrap (Debian: debootstrap)")
    jars = JarCache().ensure(read_lock(DEFAULT_VERSION))
    with tempfile.TemporaryDirectory(prefix="kafkaclient-stand-in-") as scratch:
        root = Path(scratch) / "root"
        suite, mirror = _debian()
        log = Path(scratch) / "debootstrap.log"
        # In namespaces of its own: what it starts and mounts ends with it, also when it is killed.
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        command += ["debootstrap", "--variant=minbase", f"--include={PACKAGES}"]
        command += [suite, str(root), mirror]
        with log.open("wb") as output:
            made = subprocess.run(command, stdout=output, stderr=output, check=False)
        if made.returncode != 0:
            raise SystemExit(f"debootstrap failed:\n{log.read_text('utf-8', 'replace')[-2000:]}")
        for directory in DIRECTORIES:
            (root / directory).mkdir(parents=True)
        for jar in jars:
            shutil.copy(jar, root / "opt/kafka/libs")
        launch = root / "opt/kafka/launch.sh"
        shutil.copy(LAUNCH, launch)
        launch.chmod(0o755)
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            entrypoint = 'ENTRYPOINT ["/opt/kafka/launch.sh"]'
            subprocess.run(
                ["docker", "import", "--change", entrypoint, "-", NAME],
                stdin=tar.stdout,
                stdout=subprocess.DEVNULL,
                check=True,
            )
    return NAME


def _debian() -> tuple[str, str]:
    """This machine's own suite, and the mirror that its apt has it from."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    fields = ["apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Component: main"]
    try:
        told = subprocess.run(fields, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"the stand-in is made of Debian's packages, but: {error}") from error
    for line in told.splitlines():
        release, _, mirror = line.partition(" ")
        if release == suite:
            return suite, mirror
    raise SystemExit(f"apt knows no mirror of {suite or 'this system'}")
