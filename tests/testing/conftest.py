"""A Kafka broker in a few lines, for tests of what starts and ends brokers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# Started as `java OPTIONS -cp JARS CLASS ARGUMENTS`. As a broker it answers the one question it
# is asked, who is in the cluster, with those whose directories it sees beside its own.
_JAVA = r"""#!{python}
import socketserver, struct, sys
from pathlib import Path

arguments = sys.argv[sys.argv.index("-cp") + 2:]

def properties(path):
    return dict(line.split("=", 1) for line in Path(path).read_text().splitlines())

if arguments[0] == "kafka.tools.StorageTool":
    settings = properties(arguments[-1])
    if "refuse.me" in settings:
        sys.exit("refuse.me is not for me")
    Path(settings["log.dirs"], "bootstrap.checkpoint").write_text("features")
    sys.exit()

directory = Path(arguments[1]).parent
settings = properties(arguments[1])
marker = Path({root!r}, "taken")
if marker.exists():
    marker.unlink()
    sys.exit("java.net.BindException: Address already in use")
if settings.get("fail.node") == settings["node.id"]:
    sys.exit("ERROR this broker was told to fail")
cluster_id = properties(directory / "data" / "meta.properties")["cluster.id"].encode()
nodes = [int(path.name.split("-")[1]) for path in directory.parent.glob("broker-*")]
brokers = b"".join(struct.pack(">ih4sih", node, 4, b"host", 1, -1) for node in nodes)
body = struct.pack(">iii", 0, 0, len(nodes)) + brokers
body += struct.pack(">h", len(cluster_id)) + cluster_id + struct.pack(">ii", 0, 0)

class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.request.sendall(struct.pack(">i", len(body)) + body)

class Server(socketserver.TCPServer):
    allow_reuse_address = True

listeners = dict(item.split("://127.0.0.1:") for item in settings["listeners"].split(","))
with Server(("127.0.0.1", int(listeners["DIRECT"])), Handler) as server:
    server.serve_forever()
"""


@pytest.fixture
def stub_java(tmp_path: Path) -> Path:
    """A `java` that plays a broker; with a file ``taken`` beside it, the next loses a port."""
    root = tmp_path / "java-home"
    root.mkdir()
    launcher = root / "java"
    launcher.write_text(_JAVA.format(python=sys.executable, root=str(root)))
    launcher.chmod(0o755)
    return launcher
